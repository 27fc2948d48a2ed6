// Who is hung: alive and heard, but not getting on while all others wait. Leases see the dead, this sees the
// stuck.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "actors/base/control.hpp"
#include "actors/base/plan.hpp"

namespace perdura::coordinator {

class watchdog {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  struct suspect {
    incarnation who;
    std::string why;
    bool only_waits = false;  // none has work of its own: the others wait for this one, as far as can be told
  };

  // A step is late after `least`, or after many times what steps have taken of late.
  explicit watchdog(std::chrono::milliseconds least) : least_(least) {}

  void heard(const heartbeat& h, time_point now);
  void forget(const incarnation& who) { seen_.erase(who); }
  void step_decided(time_point now);
  // Time that does not count: recoveries, pauses, waiting for workers.
  void excuse(time_point now) { last_step_ = now; }
  // A member that has work of its own (it computes, applies, restores) and has done none of it since the step
  // is late. Those that only wait for others are no suspects while there is one. When all wait for each other
  // (something between them was lost) it is the one that is furthest behind.
  std::optional<suspect> late(const plan& current, time_point now) const;

 private:
  struct trace {
    heartbeat last;
    time_point changed;
  };
  std::optional<suspect> behind_all(const plan& current, time_point now,
                                    std::chrono::nanoseconds limit) const;
  static constexpr int steps_late = 20;

  const std::chrono::milliseconds least_;
  std::optional<time_point> last_step_;
  std::chrono::nanoseconds usual_{0};  // of a step: moving average
  std::map<incarnation, trace> seen_;
};

}  // namespace perdura::coordinator
