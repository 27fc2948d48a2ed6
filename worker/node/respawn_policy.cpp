#include "worker/node/respawn_policy.hpp"

#include <algorithm>

#include "actors/base/check.hpp"

namespace perdura::worker {

respawn_policy::respawn_policy(options o) : options_(o) {
  PERDURA_CHECK(o.first.count() > 0 && o.longest >= o.first && o.healthy.count() > 0, "0 < first <= longest");
}

respawn_policy::decision respawn_policy::on_exit(std::chrono::milliseconds lived, const std::string& how) {
  failures_ = lived >= options_.healthy ? 1 : failures_ + 1;
  auto delay = options_.first;
  for (unsigned i = 1; i < failures_ && delay < options_.longest; ++i) delay *= 2;
  delay = std::min(delay, options_.longest);
  std::string reason = how + " after " + std::to_string(lived.count()) + " ms; starting again in " +
                       std::to_string(delay.count()) + " ms";
  if (failures_ > 1)
    reason += ", as it has ended " + std::to_string(failures_) + " times without " +
              std::to_string(options_.healthy.count()) + " ms of life in between";
  return {delay, failures_, std::move(reason)};
}

}  // namespace perdura::worker
