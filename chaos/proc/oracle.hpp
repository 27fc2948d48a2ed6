// Judges a run by what its processes say they did: each step applied once on its timeline, none lost, one
// outcome. Pure: fed with observations, asked for complaints.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/base/ids.hpp"

namespace perdura::chaos {

// A process has finished applying a step.
struct applied_step {
  std::string who;  // a process's life
  timeline_number timeline;
  step_number step;
  std::string outcome;  // all that the verdict said, as text
};

// What is wrong, a line each; empty when nothing is. `seen` holds each process's observations in its own
// order.
// - A process goes forward: within a timeline its steps rise (it may miss some that it got as copies), and
// its
//   timelines rise.
// - No two processes differ in the outcome of a step of a timeline.
// - Steps 1 to `last` were all applied, each on the newest timeline that reached it or one before.
std::vector<std::string> judge(const std::vector<applied_step>& seen, step_number last);

// The observations that workers leave in PERDURA_TRACE: a file for each life, lines of "TIMELINE STEP
// OUTCOME...". A line that was cut off by the process's death is ignored.
std::vector<applied_step> read_traces(const std::filesystem::path& folder);

}  // namespace perdura::chaos
