// Which checkpoints there are: RocksDB over manifests, chunk locations and reference counts. The
// coordinator's alone; all it holds can be rebuilt from the store's manifests and tombstones.
//   commit:  manifest object, put if absent (from now on the checkpoint exists) -> one synchronous batch
//   drop:    tombstones -> one synchronous batch -> manifest objects -> tombstones away -> packs nobody
//   refers to
// Opening finishes what a crash left between any two of these.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"
#include "storage/manifest.hpp"
#include "storage/object_folder.hpp"
#include "storage/retention_policy.hpp"

namespace perdura::storage {

class rocks_store;

inline constexpr std::uint32_t checkpoint_index_format_version = 2;

enum class index_stage {
  manifest_put,
  indexed,
  tombstones_put,
  unindexed,
  manifests_removed,
  tombstones_removed
};

struct checkpoint_index_options {
  // Called after each stage of commit and drop: where tests kill the process.
  std::function<void(index_stage)> at_stage = [](index_stage) {};
};

struct checkpoint_summary {
  checkpoint_key key;
  std::uint64_t bytes{};  // decoded
  std::uint64_t created_unix_ms{};
  std::string created_by;
  double loss{};
};

struct retention_report {
  std::vector<checkpoint_key> dropped;
  std::vector<std::string> packs_removed;
  std::uint64_t bytes_freed{};
};

struct verification {
  std::size_t chunks{};
  std::uint64_t bytes{};
  std::vector<std::string> failures;  // one line a chunk: tile, file, offset, why
};

// Not thread-safe. Errors of all calls: io, corrupt.
class checkpoint_index {
 public:
  // `index_folder` is the coordinator's own; one that is damaged is rebuilt. Error refused: another process
  // has it.
  static result<std::unique_ptr<checkpoint_index>> open(const std::filesystem::path& store,
                                                        const std::filesystem::path& index_folder,
                                                        checkpoint_index_options options = {});
  ~checkpoint_index();

  // Chunks may come in any order. Refuses what does not cover each tile and array once, or whose chunks do
  // not lie in their packs; the era is the caller's to check. Again with the same contents: succeeds, changes
  // nothing. Error already_exists: there is another checkpoint of this job, timeline and step.
  result<void> commit(manifest m);

  // Newest first within a job; with an empty `job`, of all jobs.
  result<std::vector<checkpoint_summary>> list(const std::string& job) const;
  result<manifest> get(const checkpoint_key& key) const;
  // The newest whose manifest and chunk headers are in order; those passed over are logged.
  result<std::optional<manifest>> latest_valid(const std::string& job) const;
  // Where a chunk of these contents lies, if anywhere.
  result<std::optional<chunk_record>> find_chunk(const content_hash& hash) const;

  // Keeps what the policy and tags want; everything else goes, then every pack that no checkpoint refers to
  // and that was written for one older than the last ones kept. The pack to which a `live` incarnation may
  // still append stays. While any lives, the snapshot under way may build on what has just become garbage:
  // packs go with the first call after a further commit, when it is committed or dropped.
  result<retention_report> retain(const std::string& job, const retention_policy& policy,
                                  std::span<const incarnation> live);
  result<retention_report> drop_older_than(const std::string& job, std::uint32_t keep,
                                           std::span<const incarnation> live) {
    return retain(job, {keep, 0}, live);
  }
  // What retain() would drop now.
  result<std::vector<checkpoint_key>> would_drop(const std::string& job,
                                                 const retention_policy& policy) const;

  // Everything anew from manifests and tombstones; one batch.
  result<void> rebuild_index();
  const object_folder& objects() const { return objects_; }
  // Reads every byte.
  result<verification> verify(const checkpoint_key& key) const;

 private:
  checkpoint_index(std::filesystem::path store, std::unique_ptr<rocks_store> rows,
                   checkpoint_index_options options);
  result<void> repair();
  result<void> finish_deletions();
  result<std::vector<retention_candidate>> candidates(const std::string& job) const;
  result<void> spare_tagged(std::vector<checkpoint_key>& condemned);
  result<void> put_rows(const manifest& m);
  result<void> remove_rows(std::span<const checkpoint_key> keys);
  result<void> erase(std::span<const checkpoint_key> keys);
  result<void> sweep_packs(const checkpoint_key& oldest_kept, std::span<const incarnation> live,
                           retention_report& report);
  bool may_go(const std::string& pack, bool at_once);
  result<std::vector<checkpoint_key>> keys(const std::string& job) const;
  bool is_in_order(const checkpoint_key& key) const;
  result<bool> all_manifests_counted() const;

  std::filesystem::path store_;
  object_folder objects_;
  std::unique_ptr<rocks_store> rows_;
  checkpoint_index_options options_;
  std::uint64_t commits_ = 0;                       // of this life
  std::map<std::string, std::uint64_t> condemned_;  // packs found to be garbage, and after which commit
};

}  // namespace perdura::storage
