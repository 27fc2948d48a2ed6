// How checkpoints are deleted: each stage can be done again, so that opening finishes what a crash left.
#include <algorithm>
#include <map>
#include <tuple>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/file.hpp"
#include "storage/index/checkpoint_index.hpp"
#include "storage/index/references.hpp"
#include "storage/index/rocks_store.hpp"
#include "storage/tags.hpp"

namespace perdura::storage {
namespace {

struct stored_pack {
  pack_name name;
  std::uint64_t bytes{};
};

result<std::vector<stored_pack>> list_packs(const std::filesystem::path& folder) {
  std::vector<stored_pack> packs;
  std::error_code failed;
  std::filesystem::directory_iterator at(folder, failed);
  for (const std::filesystem::directory_iterator end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    const auto name = parse_pack_name(at->path().filename().string());
    if (name && at->is_regular_file(gone)) packs.push_back({*name, at->file_size(gone)});
  }
  if (failed && failed != std::errc::no_such_file_or_directory)
    return error{errc::io, "cannot list " + folder.string() + ": " + failed.message()};
  return packs;
}

// The pack with the highest sequence is the one that a live incarnation may be appending to.
std::map<incarnation, std::uint32_t> packs_in_use(const std::vector<stored_pack>& packs,
                                                  std::span<const incarnation> live) {
  std::map<incarnation, std::uint32_t> newest;
  for (const auto& pack : packs)
    if (std::find(live.begin(), live.end(), pack.name.who) != live.end())
      newest[pack.name.who] = std::max(newest[pack.name.who], pack.name.sequence);
  return newest;
}

// Of a pack that nothing refers to: it never will be referred to.
bool is_garbage(const std::filesystem::path& folder, const stored_pack& pack,
                const checkpoint_key& oldest_kept) {
  // Its writer died over the header: nothing in it was ever reported.
  if (pack.bytes < pack_header_bytes) return true;
  const auto reader = pack_reader::open(folder, to_string(pack.name));
  if (!reader) {
    log::warn("a pack that no checkpoint refers to is damaged and left alone: " + reader.failure().message);
    return false;
  }
  const pack_purpose& purpose = reader->header().purpose;
  return purpose.job == hash_of_job(oldest_kept.job) &&
         std::tie(purpose.timeline, purpose.step) < std::tie(oldest_kept.timeline, oldest_kept.step);
}

}  // namespace

// From the manifests themselves, not from the index: what cannot be read has to go some day too.
result<std::vector<retention_candidate>> checkpoint_index::candidates(const std::string& job) const {
  if (!is_job_name(job)) return error{errc::invalid_argument, "'" + job.substr(0, 64) + "' names no job"};
  const auto found = list_checkpoints(objects_, job);
  if (!found) return found.failure();
  const auto tags = list_tags(objects_, job);
  if (!tags) return tags.failure();
  std::vector<retention_candidate> all;
  for (const auto& key : *found) {
    const auto m = get(key);
    all.push_back({key, m ? m->created_unix_ms : 0, is_in_order(key), tags->contains(key)});
  }
  return all;
}

result<std::vector<checkpoint_key>> checkpoint_index::would_drop(const std::string& job,
                                                                 const retention_policy& policy) const {
  if (policy.keep_last == 0) return error{errc::invalid_argument, "keep is 0; at least 1 checkpoint is kept"};
  const auto all = candidates(job);
  if (!all) return all.failure();
  return choose(*all, policy).dropped;
}

result<retention_report> checkpoint_index::retain(const std::string& job, const retention_policy& policy,
                                                  std::span<const incarnation> live) {
  if (policy.keep_last == 0) return error{errc::invalid_argument, "keep is 0; at least 1 checkpoint is kept"};
  const auto all = candidates(job);
  if (!all) return all.failure();
  auto choice = choose(*all, policy);
  retention_report report;
  if (choice.oldest_of_last == nullptr) return report;
  report.dropped = std::move(choice.dropped);

  for (const auto& key : report.dropped)
    if (auto put = objects_.put_if_absent(tombstone_object(key), ""); !put)
      if (put.failure().code != errc::already_exists) return put.failure();
  options_.at_stage(index_stage::tombstones_put);
  if (auto spared = spare_tagged(report.dropped); !spared) return spared.failure();
  if (auto erased = erase(report.dropped); !erased) return erased.failure();
  const auto counted = all_manifests_counted();
  if (!counted) return counted.failure();
  if (!*counted) return report;
  if (auto swept = sweep_packs(choice.oldest_of_last->key, live, report); !swept) return swept.failure();
  return report;
}

// Somebody may have given a tag since we looked; see tags.hpp.
result<void> checkpoint_index::spare_tagged(std::vector<checkpoint_key>& condemned) {
  const auto tags = list_tags(objects_, "");
  if (!tags) return tags.failure();
  for (const auto& key : condemned)
    if (tags->contains(key))
      if (auto removed = objects_.remove(tombstone_object(key)); !removed) return removed;
  std::erase_if(condemned, [&](const auto& key) { return tags->contains(key); });
  return {};
}

// A manifest that could not be read has packs too, and the index does not know which.
result<bool> checkpoint_index::all_manifests_counted() const {
  const auto stored = list_checkpoints(objects_, "");
  if (!stored) return stored.failure();
  const auto indexed = keys("");
  if (!indexed) return indexed.failure();
  for (const auto& key : *stored) {
    if (std::find(indexed->begin(), indexed->end(), key) != indexed->end()) continue;
    log::warn("no packs are freed: checkpoint " + to_string(key) + " is not in the index");
    return false;
  }
  return true;
}

result<void> checkpoint_index::erase(std::span<const checkpoint_key> keys) {
  if (auto removed = remove_rows(keys); !removed) return removed;
  options_.at_stage(index_stage::unindexed);
  for (const auto& key : keys)
    if (auto removed = objects_.remove(manifest_object(key)); !removed) return removed;
  options_.at_stage(index_stage::manifests_removed);
  // Only now that the manifests' absence is durable: before, the checkpoints would come back.
  for (const auto& key : keys)
    if (auto removed = objects_.remove(tombstone_object(key)); !removed) return removed;
  options_.at_stage(index_stage::tombstones_removed);
  return {};
}

result<void> checkpoint_index::finish_deletions() {
  const auto names = objects_.list("tombstones");
  if (!names) return names.failure();
  std::vector<checkpoint_key> condemned;
  for (const auto& name : *names)
    if (auto key = parse_checkpoint_object(name)) condemned.push_back(*std::move(key));
  if (condemned.empty()) return {};
  if (auto spared = spare_tagged(condemned); !spared) return spared;
  return erase(condemned);
}

bool checkpoint_index::may_go(const std::string& pack, bool at_once) {
  const auto since = condemned_.emplace(pack, commits_).first;
  if (!at_once && since->second == commits_) return false;
  condemned_.erase(since);
  return true;
}

result<void> checkpoint_index::sweep_packs(const checkpoint_key& oldest_kept,
                                           std::span<const incarnation> live, retention_report& report) {
  const auto folder = packs_folder(store_);
  const auto packs = list_packs(folder);
  if (!packs) return packs.failure();
  const auto in_use = packs_in_use(*packs, live);
  for (const auto& pack : *packs) {
    const std::string name = to_string(pack.name);
    const auto used = in_use.find(pack.name.who);
    if (used != in_use.end() && used->second == pack.name.sequence) continue;
    const auto references = rows_->get(packs_family, name);
    if (!references) return references.failure();
    if (*references) condemned_.erase(name);
    if (*references || !is_garbage(folder, pack, oldest_kept) || !may_go(name, live.empty())) continue;
    if (std::error_code failed; !std::filesystem::remove(folder / name, failed) && failed)
      return error{errc::io, "cannot remove " + (folder / name).string() + ": " + failed.message()};
    report.packs_removed.push_back(name);
    report.bytes_freed += pack.bytes;
  }
  if (report.packs_removed.empty()) return {};
  return sync_folder(folder);
}

}  // namespace perdura::storage
