// Whether a job's checkpoints come as promised: when one is due by time, and what to warn of. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "actors/base/ids.hpp"

namespace perdura::coordinator {

class checkpoint_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  // 0: never due by time; no promise.
  checkpoint_watch(std::chrono::seconds interval, std::chrono::seconds promise)
      : interval_(interval), promise_(promise) {}

  struct advice {
    bool snapshot = false;  // is due: once for each interval
    std::string alarm;      // to be said once; empty: nothing
  };
  // Only time in which the job computes counts.
  advice tick(bool computes, time_point now);
  // `weights`: a digest of what is trained, as saved. Gives an alarm, or nothing.
  std::string committed(step_number step, const std::string& weights, time_point now);
  // What is wrong now, in a sentence; empty: nothing.
  const std::string& warning() const { return warning_; }

 private:
  const std::chrono::seconds interval_;
  const std::chrono::seconds promise_;
  std::optional<time_point> ticked_;
  std::chrono::nanoseconds since_saved_{0};
  std::chrono::nanoseconds since_asked_{0};
  std::optional<step_number> saved_;
  std::string weights_;
  std::string warning_;
  bool is_late_ = false;
};

}  // namespace perdura::coordinator
