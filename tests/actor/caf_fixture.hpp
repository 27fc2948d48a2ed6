// Actors in one thread and virtual time: nothing runs until asked to, and the seed chooses who runs next.
#pragma once

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>
#include <random>

#include "actors/wire/compat.hpp"

namespace perdura::test {

class caf_fixture {
 public:
  // Seed 0: first come, first served.
  explicit caf_fixture(std::uint64_t seed = 0) : random_(seed), shuffles_(seed != 0), system(config_) {}

  // One actor reads one batch of its mailbox. False when nothing is left to do.
  bool step() {
    auto& jobs = scheduler().jobs;
    if (jobs.empty()) return false;
    if (shuffles_)
      std::rotate(jobs.begin(), jobs.begin() + static_cast<long>(random_() % jobs.size()), jobs.end());
    return scheduler().try_run_once();
  }
  void run() {
    while (step()) {}
  }
  // Fires what is due meanwhile, then runs until nothing is left to do.
  void advance(std::chrono::milliseconds time) {
    run();
    scheduler().advance_time(time);
    run();
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system.scheduler());
  }

 private:
  struct testing_config : caf::actor_system_config {
    testing_config() {
      wire::add_message_types(*this);
      set("scheduler.policy", caf::atom("testing"));
    }
  };
  std::mt19937_64 random_;
  bool shuffles_;
  testing_config config_;

 public:
  caf::actor_system system;
};

}  // namespace perdura::test
