// `perdura plan FILE`: what a job would take on given machines, before anything runs. Needs no coordinator.
#pragma once

#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "coordinator/console/render.hpp"
#include "coordinator/logic/forecast.hpp"

namespace perdura::console {

struct plan_file_options {
  std::string file;
  std::uint32_t workers = 0;       // each on a machine of its own
  std::vector<std::string> nodes;  // as parse_machine takes them
  double gbit_per_s = 10;          // of each worker, in and out
  std::string costs;               // a file; empty: measured here
};

// The argument of `perdura plan` is a file, not a job's name.
bool is_job_file(const std::string& argument);

struct planned_worker {
  std::string name;
  coordinator::candidate is;
};

// "NAME=DEVICES,host=..,rack=..,zone=..,gib=..,speed=..": the workers of a machine. The host is the name
// unless given; gib is shared by its devices; speed is relative to the machine measured. Errors:
// invalid_argument says which part, and what is expected.
result<std::vector<planned_worker>> parse_machine(const std::string& text);

// Of what `perdura-worker --describe JOB --measure --json` prints. Errors: corrupt.
result<coordinator::job_costs> parse_costs(const std::string& json);

// Everything that is shown.
document forecast_document(const job_config& job, const coordinator::job_costs& costs,
                           const std::vector<planned_worker>& workers, double gbit_per_s);

result<void> run_plan_file(const plan_file_options& options, renderer& view);

}  // namespace perdura::console
