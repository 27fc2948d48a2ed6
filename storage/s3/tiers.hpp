// All tiers of a coordinator, by its settings.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/tier_config.hpp"
#include "storage/object_store.hpp"
#include "storage/s3/tier_keeper.hpp"

namespace perdura::storage {

// Asks nobody yet. Error invalid_argument: which setting is wrong, and how. The impatient one gives up on a
// service that does not answer after seconds, not minutes: somebody waits.
result<std::unique_ptr<object_store>> make_tier(const tier_config& config, bool is_impatient = false);
tier_options options_of(const tier_config& config);

class tier_set {
 public:
  // `on_event` is called on the tiers' threads.
  static result<std::unique_ptr<tier_set>> make(const std::vector<tier_config>& tiers,
                                                const std::filesystem::path& store,
                                                const tier_keeper::listener& on_event);

  // Before start(), for a job that the store has no whole checkpoint of, or none but older than `than`: the
  // newest of the first tier that has one is brought into the store. Waits for it; a tier that does not
  // answer is passed over and said so in the log.
  std::optional<manifest> fetch_newest(const std::string& job,
                                       const std::optional<checkpoint_key>& than) const;

  void start();
  void committed(const checkpoint_key& key);  // returns at once
  std::vector<tier_status> status() const;

 private:
  tier_set(std::vector<tier_config> configs, std::filesystem::path store)
      : configs_(std::move(configs)), store_(std::move(store)) {}

  const std::vector<tier_config> configs_;
  const std::filesystem::path store_;
  std::vector<std::unique_ptr<tier_keeper>> keepers_;
};

}  // namespace perdura::storage
