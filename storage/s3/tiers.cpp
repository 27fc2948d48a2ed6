#include "storage/s3/tiers.hpp"

#include "actors/base/log.hpp"
#include "storage/folder_store.hpp"
#include "storage/s3/s3_store.hpp"

namespace perdura::storage {
namespace {

using namespace std::chrono_literals;

s3::retry_options impatient() {
  s3::retry_options o;
  o.attempts_max = 4;
  o.longest = 2s;
  o.budget = 10s;
  return o;
}

}  // namespace

result<std::unique_ptr<object_store>> make_tier(const tier_config& config, bool is_impatient) {
  if (config.kind == "folder")
    return std::unique_ptr<object_store>(std::make_unique<folder_store>(config.folder));
  s3::s3_options o;
  o.endpoint = config.endpoint;
  o.bucket = config.bucket;
  o.prefix = config.prefix;
  o.region = config.region;
  o.is_path_style = config.addressing == "path";
  o.has_conditional_puts = config.conditional_puts;
  o.allows_plain_http = config.plain_http;
  o.ca_file = config.ca_file;
  o.part_bytes = std::uint64_t{config.part_mb} << 20;
  o.limits.upload_bytes_per_s_max = std::uint64_t{config.upload_mb_per_s} * 1'000'000;
  if (is_impatient) {
    o.retry = impatient();
    o.limits.connect = 3s;
    o.limits.stall = 10s;
  }
  o.who = s3::make_source(config.credentials_file, config.profile);
  auto made = s3::s3_store::make(std::move(o));
  if (!made) return error{made.failure().code, "[tier." + config.name + "]: " + made.failure().message};
  return std::unique_ptr<object_store>(*std::move(made));
}

tier_options options_of(const tier_config& config) {
  tier_options o;
  o.name = config.name;
  o.keep = config.keep;
  return o;
}

result<std::unique_ptr<tier_set>> tier_set::make(const std::vector<tier_config>& tiers,
                                                 const std::filesystem::path& store,
                                                 const tier_keeper::listener& on_event) {
  std::unique_ptr<tier_set> set(new tier_set(tiers, store));
  for (const auto& config : tiers) {
    auto tier = make_tier(config);
    if (!tier) return tier.failure();
    set->keepers_.push_back(
        std::make_unique<tier_keeper>(options_of(config), *std::move(tier), store, on_event));
  }
  return set;
}

std::optional<manifest> tier_set::fetch_newest(const std::string& job,
                                               const std::optional<checkpoint_key>& than) const {
  for (const auto& config : configs_) {
    const auto tier = make_tier(config, true);
    if (!tier) continue;  // make() has refused it
    auto fetched = storage::fetch_newest(**tier, store_, job, than);
    if (fetched && *fetched) {
      log::warn("checkpoint " + to_string((*fetched)->key()) + " was not here and is fetched from " +
                (*tier)->where());
      return *std::move(fetched);
    }
    if (!fetched)
      log::warn("no checkpoint of " + job + " from the tier " + config.name + ": " +
                fetched.failure().message);
  }
  return std::nullopt;
}

void tier_set::start() {
  for (const auto& keeper : keepers_) keeper->start();
}

void tier_set::committed(const checkpoint_key& key) {
  for (const auto& keeper : keepers_) keeper->committed(key);
}

std::vector<tier_status> tier_set::status() const {
  std::vector<tier_status> all;
  for (const auto& keeper : keepers_) all.push_back(keeper->status());
  return all;
}

}  // namespace perdura::storage
