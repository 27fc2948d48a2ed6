// Who has been heard of late. A lease runs in the time that this process was awake: whoever slept itself,
// once or in bursts, must not take the silence of others for their death.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/rules.hpp"

namespace perdura::coordinator {

class lease_table {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // Ticks come at least ten times in a lease. Of what is longer than a quarter between two of them the rest
  // was sleep.
  explicit lease_table(std::chrono::nanoseconds lease, broken_rules broken = {})
      : lease_(lease), tick_max_(lease / 4), broken_(broken) {}

  void renew(const incarnation& who) { heard_[who] = awake_; }
  void forget(const incarnation& who) { heard_.erase(who); }
  // How long this process has slept since the last tick; zero if it did not.
  std::chrono::nanoseconds tick(time_point now);
  std::vector<incarnation> expired() const;

 private:
  const std::chrono::nanoseconds lease_;
  const std::chrono::nanoseconds tick_max_;
  const broken_rules broken_;
  std::chrono::nanoseconds awake_{0};
  time_point last_;
  bool has_ticked_ = false;
  bool is_late_ = false;  // the last tick was: what arrived meanwhile may have yet to be heard
  std::map<incarnation, std::chrono::nanoseconds> heard_;  // in time awake
};

}  // namespace perdura::coordinator
