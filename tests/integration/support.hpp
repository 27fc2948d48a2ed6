// What the integration tests share: the same small job under ever other circumstances, and what must hold
// after each.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "chaos/proc/cluster.hpp"

namespace perdura::integration {

using chaos::milliseconds;

// The seed is the first thing that a job goes back to.
inline constexpr timeline_number first_timeline{1};

inline void start(chaos::cluster& c, std::initializer_list<chaos::node_options> nodes) {
  c.start_coordinator();
  for (const auto& node : nodes) c.start_node(node);
  std::size_t devices = 0;
  for (const auto& node : nodes) devices += node.devices;
  chaos::wait_until("all workers to register", chaos::cluster::default_limit,
                    [&] { return c.workers().size() == devices; });
}

// The hash that a job must end with: that of one worker left alone.
inline std::string undisturbed_hash(const chaos::job_text& job) {
  chaos::cluster c;
  start(c, {{.name = "alone"}});
  c.submit(job.text());
  return c.wait_finished().final_hash;
}

// Each test program asks for it several times and runs it once.
inline const std::string& tiny_hash() {
  static const std::string hash = undisturbed_hash(chaos::tiny_job());
  return hash;
}

// Every step applied once, with one outcome, by whoever was there; and the coordinator's history is as
// complete.
inline void check_history(chaos::cluster& c, std::uint64_t last) {
  auto complaints = chaos::judge(c.applied(), step_number{last});
  CHECK_MESSAGE(complaints.empty(), (complaints.empty() ? std::string{} : complaints.front()));
  auto steps = c.steps();
  REQUIRE(steps.size() == last);
  for (std::size_t i = 0; i < steps.size(); ++i) CHECK(steps[i].step.value == i + 1);
}

}  // namespace perdura::integration
