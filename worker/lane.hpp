// The one thread that does a worker's numbers. State work (reduce, apply, copy ...) runs in the order it was
// asked for and before any computing; what is being computed lets it in where it may be interrupted.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "actors/base/plan.hpp"

namespace perdura::worker {

class lane {
 public:
  lane();
  ~lane();  // drops what waits and joins
  lane(const lane&) = delete;
  lane& operator=(const lane&) = delete;

  void run(std::function<void()> task);
  // `stop` is set when the block is no longer wanted (keep_only).
  void compute(step_number step, block slots, std::function<void(const std::atomic<bool>& stop)> task);
  // From within a block being computed: does the state work that waits.
  void run_waiting();
  // The same, after waiting for some if there is none; returns as well when the block is to stop.
  void wait_for_state();
  // Drops blocks of other steps and those that are not in `wanted`.
  void keep_only(step_number step, const std::vector<block>& wanted);

 private:
  struct job {
    step_number step;
    block slots;
    std::function<void(const std::atomic<bool>&)> task;
  };
  void work();
  void run_state(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> state_;
  std::deque<job> compute_;
  step_number running_step_;
  block running_{};  // size 0: none
  std::atomic<bool> stop_{false};
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::worker
