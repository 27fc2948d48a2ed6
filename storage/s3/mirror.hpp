// Checkpoints of a local store in a tier, and back. The tier is laid out as the store is (layout.hpp).
//   push:   packs that are not there yet -> manifest, put if absent (from now on the tier has the checkpoint)
//   fetch:  packs to temporary names, verified, into place -> everything verified -> manifest
//   remove: tombstone -> manifest away -> tombstone away -> packs that no manifest needs
// After a crash anywhere the same call goes on where it was; nothing that is half there is ever visible.
// One process at a time writes to a tier: the coordinator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "storage/manifest.hpp"
#include "storage/object_store.hpp"
#include "storage/pack.hpp"

namespace perdura::storage {

enum class mirror_stage : std::uint8_t {
  pack_put,
  packs_put,
  manifest_put,
  piece_fetched,
  pack_fetched,
  packs_verified,
  manifest_fetched,
  tombstones_put,
  manifests_removed,
  tombstones_removed,
  pack_removed
};

struct mirror_options {
  // Called after each stage: where tests end the process.
  std::function<void(mirror_stage)> at_stage = [](mirror_stage) {};
  std::uint64_t piece_bytes = std::uint64_t{8} << 20;  // fetched at once, in memory
};

struct push_report {
  std::size_t packs_sent{};
  std::uint64_t bytes_sent{};
};

struct removal_report {
  std::vector<checkpoint_key> removed;
  std::vector<std::string> packs_removed;
  std::uint64_t bytes_freed{};
};

// Which packs a checkpoint needs, and how much of each: up to the end of the last chunk that it refers to.
using pack_extents = std::map<std::string, std::uint64_t>;
pack_extents extents_of(const manifest& m);

// Not thread-safe. Errors: those of the tier and of the store; each names what was attempted.
class mirror {
 public:
  mirror(const object_store& tier, std::filesystem::path store, mirror_options options = {})
      : tier_(tier), store_(std::move(store)), options_(std::move(options)) {}

  // Error not_found: the store does not have the checkpoint (any more). already_exists: the tier has another
  // one of this name. refused: it is being removed there.
  result<push_report> push(const checkpoint_key& key);
  // Afterwards the store has it, every byte of it verified. Error not_found: the tier has no such checkpoint;
  // corrupt: it is damaged there.
  result<manifest> fetch(const checkpoint_key& key);
  // Newest first within a job; an empty `job`: of all jobs.
  result<std::vector<checkpoint_key>> list(const std::string& job) const;

  result<removal_report> remove(const checkpoint_key& key);
  // All of the job but the newest `keep`, which is at least 1.
  result<removal_report> keep_newest(const std::string& job, std::size_t keep);
  // What a crash left of removals.
  result<void> finish_removals();

 private:
  result<manifest> manifest_of(const checkpoint_key& key) const;
  result<void> put_packs(const pack_extents& needed, push_report& report);
  result<void> put_manifest(const manifest& m);
  result<bool> has_packs(const pack_extents& needed) const;

  result<void> fetch_packs(const pack_extents& needed, bool even_if_there);
  result<void> fetch_pack(const std::string& name, std::uint64_t needed);
  result<void> download(const std::string& name, const std::filesystem::path& to);
  result<void> keep_manifest(const manifest& m);

  result<removal_report> remove_all(const std::vector<checkpoint_key>& keys);
  result<void> sweep(removal_report& report);
  result<std::map<checkpoint_key, pack_extents>> all_extents();
  result<bool> is_garbage(const std::string& pack, const std::map<checkpoint_key, pack_extents>& kept,
                          const std::vector<checkpoint_key>& removed) const;

  const object_store& tier_;
  std::filesystem::path store_;
  mirror_options options_;
  std::map<checkpoint_key, pack_extents> known_;  // of the tier's manifests, which never change
};

}  // namespace perdura::storage
