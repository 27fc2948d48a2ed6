// Reference counts of chunks and packs, as rows of the index: what a set of manifests adds and removes is
// gathered first, then written in one batch. Private to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "actors/base/result.hpp"
#include "storage/index/rocks_store.hpp"
#include "storage/manifest.hpp"

namespace perdura::storage {

// Leases are for writers that look up what exists before they write; nobody takes one yet.
enum index_family : std::size_t {
  manifests_family = 1,
  chunks_family = 2,
  packs_family = 3,
  leases_family = 4
};

std::string manifest_key(const checkpoint_key& key);  // sorts by job, timeline, step
std::string manifest_key_prefix(std::string_view job);
std::string chunk_key(const chunk_record& record);  // hash, pack, offset: a chunk may lie in several places
std::string chunk_key_prefix(const content_hash& hash);

// A chunk's row; its hash, pack and offset are the key.
struct chunk_row {
  std::uint64_t references{};
  chunk_record record;
};
result<chunk_row> decode_chunk_row(std::string_view key, std::string_view value);

class reference_changes {
 public:
  void add(const manifest& m) { count(m, 1); }
  void remove(const manifest& m) { count(m, -1); }
  // With `from_nothing` the counts start at zero whatever the store holds now.
  result<void> put_into(rocksdb::WriteBatch& batch, const rocks_store& store, bool from_nothing) const;

 private:
  void count(const manifest& m, std::int64_t change);
  std::map<chunk_record, std::int64_t> chunks_;
  std::map<std::string, std::int64_t> packs_;  // manifests that refer to the pack
};

}  // namespace perdura::storage
