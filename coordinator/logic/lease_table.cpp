#include "coordinator/logic/lease_table.hpp"

#include <algorithm>

namespace perdura::coordinator {

std::chrono::nanoseconds lease_table::tick(time_point now) {
  const auto passed = has_ticked_ ? std::chrono::nanoseconds(now - last_) : std::chrono::nanoseconds(0);
  last_ = now;
  has_ticked_ = true;
  const auto counted = broken_.has(rule::excuse_sleep) ? passed : std::min(passed, tick_max_);
  awake_ += counted;
  is_late_ = passed > lease_ / 8 && !broken_.has(rule::excuse_sleep);
  return passed > lease_ / 2 ? passed - counted : std::chrono::nanoseconds(0);
}

std::vector<incarnation> lease_table::expired() const {
  const auto limit = is_late_ ? lease_ + tick_max_ : lease_;
  std::vector<incarnation> silent;
  for (const auto& [who, at] : heard_)
    if (awake_ - at > limit) silent.push_back(who);
  return silent;
}

}  // namespace perdura::coordinator
