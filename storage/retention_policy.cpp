#include "storage/retention_policy.hpp"

#include <set>

#include "actors/base/check.hpp"

namespace perdura::storage {

retention_choice choose(std::span<const retention_candidate> candidates, const retention_policy& policy) {
  PERDURA_CHECK(policy.keep_last > 0, "at least one checkpoint is kept");
  retention_choice choice;
  std::size_t last = candidates.size();
  std::uint32_t sound = 0;
  for (std::size_t i = 0; i < candidates.size() && sound < policy.keep_last; ++i)
    if (candidates[i].is_sound && ++sound == policy.keep_last) last = i;
  if (last == candidates.size()) return choice;
  choice.oldest_of_last = &candidates[last];

  const std::uint64_t hours_ms = std::uint64_t{policy.keep_every_hours} * 3'600'000;
  std::set<std::uint64_t> seen;  // from the oldest on: which one is the first of its hours never changes
  for (std::size_t i = candidates.size(); i-- > 0;) {
    const auto& c = candidates[i];
    const bool is_first = hours_ms > 0 && c.is_sound && seen.insert(c.created_unix_ms / hours_ms).second;
    if (i > last && !c.is_tagged && !is_first) choice.dropped.push_back(c.key);
  }
  return {std::vector<checkpoint_key>(choice.dropped.rbegin(), choice.dropped.rend()), choice.oldest_of_last};
}

}  // namespace perdura::storage
