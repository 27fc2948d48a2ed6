#include "storage/s3/tier_keeper.hpp"

#include <algorithm>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/object_folder.hpp"

namespace perdura::storage {
namespace {

constexpr std::size_t fetch_tries_max = 5;  // older ones, where newer ones are damaged

}  // namespace

tier_keeper::tier_keeper(tier_options options, std::unique_ptr<object_store> tier,
                         std::filesystem::path store, listener on_event)
    : options_(std::move(options)),
      tier_(std::move(tier)),
      store_(std::move(store)),
      on_event_(std::move(on_event)),
      mirror_(*tier_, store_) {}

void tier_keeper::start() {
  PERDURA_CHECK(!thread_.joinable(), "a tier's keeper is started once");
  thread_ = std::thread([this] { work(); });
}

tier_keeper::~tier_keeper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  tier_->cancel();
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void tier_keeper::committed(const checkpoint_key& key) {
  {
    const std::lock_guard lock(mutex_);
    auto& waiting = pending_[key.job];
    if (waiting.job.empty() || waiting < key) waiting = key;
  }
  changed_.notify_all();
}

tier_status tier_keeper::status() const {
  const std::lock_guard lock(mutex_);
  tier_status s{options_.name, tier_->where(), newest_, {}, failure_, failures_in_a_row_};
  for (const auto& [job, key] : pending_) s.missing.push_back(key);
  return s;
}

std::optional<checkpoint_key> tier_keeper::next_of_pending() const {
  if (pending_.empty()) return std::nullopt;
  return pending_.begin()->second;
}

void tier_keeper::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (!has_caught_up_ || !pending_.empty()) {
      const auto key = next_of_pending();
      lock.unlock();
      if (!has_caught_up_)
        catch_up();
      else
        bring(*key);
      lock.lock();
    }
    auto wait = options_.retry_first;
    for (unsigned i = 1; i < failures_in_a_row_ && wait < options_.retry_longest; ++i) wait *= 2;
    wait = std::min(wait, options_.retry_longest);
    // After a failure a new checkpoint does not shorten the wait.
    if (failures_in_a_row_ > 0)
      changed_.wait_for(lock, wait, [&] { return ending_; });
    else
      changed_.wait(lock, [&] { return ending_ || !pending_.empty(); });
  }
}

void tier_keeper::catch_up() {
  const auto here = list_checkpoints(object_folder(store_), "");
  if (!here) return failed({}, here.failure());
  if (auto finished = mirror_.finish_removals(); !finished) return failed({}, finished.failure());
  const auto there = mirror_.list("");
  if (!there) return failed({}, there.failure());
  {
    const std::lock_guard lock(mutex_);
    // Newest first within a job.
    for (const auto& key : *there) newest_.emplace(key.job, key);
    for (const auto& key : *here) {
      const auto known = newest_.find(key.job);
      if (known != newest_.end() && !(known->second < key)) continue;
      auto& waiting = pending_[key.job];
      if (waiting.job.empty() || waiting < key) waiting = key;
    }
    has_caught_up_ = true;
  }
  succeeded({}, {});
}

void tier_keeper::bring(const checkpoint_key& key) {
  const auto pushed = mirror_.push(key);
  if (!pushed) {
    const auto here = object_folder(store_).exists(manifest_object(key));
    if (!here || *here) return failed(key, pushed.failure());
    // Retention was faster; a newer one is on its way.
    log::warn("checkpoint " + to_string(key) + " went before it reached the tier " + options_.name);
    return passed_over(key);
  }
  succeeded(key, *pushed);
  if (const auto removed = mirror_.keep_newest(key.job, options_.keep); !removed)
    log::warn("old checkpoints stay in the tier " + options_.name + ": " + removed.failure().message);
}

void tier_keeper::passed_over(const checkpoint_key& key) {
  const std::lock_guard lock(mutex_);
  if (const auto waiting = pending_.find(key.job); waiting != pending_.end() && waiting->second == key)
    pending_.erase(waiting);
}

void tier_keeper::succeeded(const checkpoint_key& key, const push_report& report) {
  bool was_failing = false;
  {
    const std::lock_guard lock(mutex_);
    was_failing = failures_in_a_row_ > 0;
    failure_.clear();
    failures_in_a_row_ = 0;
    if (const auto waiting = pending_.find(key.job); waiting != pending_.end() && waiting->second == key) {
      pending_.erase(waiting);
      newest_[key.job] = key;
    }
  }
  if (was_failing) {
    log::info("the tier " + options_.name + " works again");
    on_event_({tier_event::kind::recovered, options_.name, key, "works again"});
  }
  if (key.job.empty()) return;
  const std::string message = std::to_string(report.packs_sent) + " packs, " +
                              std::to_string(report.bytes_sent) + " bytes, to " + tier_->where();
  on_event_({tier_event::kind::brought, options_.name, key, message});
}

void tier_keeper::failed(const checkpoint_key& key, const error& why) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    failure_ = why.message;
    ++failures_in_a_row_;
  }
  log::warn("the tier " + options_.name + " lags" +
            (key.job.empty() ? std::string() : ": checkpoint " + to_string(key) + " is not there yet") +
            ": " + why.message);
  on_event_({tier_event::kind::failed, options_.name, key, why.message});
}

result<std::optional<manifest>> fetch_newest(const object_store& tier, const std::filesystem::path& store,
                                             const std::string& job,
                                             const std::optional<checkpoint_key>& than) {
  mirror between(tier, store);
  const auto there = between.list(job);
  if (!there) return there.failure();
  std::size_t tries = 0;
  for (const auto& key : *there) {
    if ((than && !(*than < key)) || tries++ == fetch_tries_max) break;
    auto fetched = between.fetch(key);
    if (fetched) return std::optional(*std::move(fetched));
    // An older one is better than a damaged one, and worse than waiting for the tier.
    if (fetched.failure().code != errc::corrupt) return fetched.failure();
    log::error("passed over: " + fetched.failure().message);
  }
  return std::optional<manifest>{};
}

}  // namespace perdura::storage
