// What a worker does of a checkpoint: its tiles become chunks in its own packs, and durable; then it reports
// them. The coordinator alone makes a checkpoint of them (index/checkpoint_index.hpp).
//
// Snapshots are incremental: a chunk of the newest checkpoint with the same bytes is only referred to; one
// that has changed is stored as the difference to it where that is smaller. What the newest checkpoint needs
// stays at least until the second commit after it (index/retention.cpp), and a snapshot that was begun on it
// has been committed or dropped by then.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/control.hpp"
#include "actors/base/result.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/chunk.hpp"
#include "storage/codec.hpp"
#include "storage/object_folder.hpp"
#include "storage/pack.hpp"

namespace perdura::storage {

struct writer_options {
  pack_options packs{};
  bool may_compress = true;
  // Deltas on top of each other; then a chunk is stored whole again. Between 0 and chain_length_max.
  std::size_t chain_max = 8;
  // Of tiles as they were last written, kept to make deltas against; others are read back.
  std::uint64_t base_bytes_max = std::uint64_t{256} << 20;
};

// One snapshot after the other; each has packs of its own, so that retention frees whole files. Not
// thread-safe.
class checkpoint_writer {
 public:
  checkpoint_writer(const std::filesystem::path& store, incarnation who, writer_options options = {});

  // Begins a snapshot; one that was not finished is given up. `origin`: what the job began from, of which its
  // first checkpoint may be told as a difference.
  void begin(const checkpoint_key& snapshot, const std::optional<checkpoint_key>& origin = {});
  // Must not be reported before finish() has succeeded.
  result<tile_chunk> append(tile_id tile, chunk_kind kind, std::span<const std::byte> bytes,
                            std::uint32_t element_bytes = 4);
  // All arrays of a tile, equally long and one after the other, as trainer::copy_tile gives them.
  result<std::vector<tile_chunk>> append_tile(tile_id tile, std::span<const std::byte> state,
                                              std::span<const chunk_kind> kinds = all_kinds);
  // The same; the state is kept, not copied, for the next delta.
  result<std::vector<tile_chunk>> append_tile(tile_id tile, const blob& state,
                                              std::span<const chunk_kind> kinds = all_kinds);
  // What a chunk of this snapshot builds on, nearest first: the manifest has to name it.
  std::vector<chunk_record> bases_of(const chunk_record& chunk) const;
  // On success all that was appended is durable; on failure none of it counts: go on with begin().
  result<void> finish();

  std::uint64_t bytes_written() const { return bytes_written_; }  // of this snapshot, encoded

 private:
  struct kept_state {
    blob state;
    std::vector<std::pair<chunk_kind, content_hash>> arrays;  // equally long
  };
  void find_previous(const checkpoint_key& snapshot, const std::optional<checkpoint_key>& origin);
  bool open_previous(const checkpoint_key& key);
  // A chunk of the newest checkpoint, if it is still there and whole as far as headers tell.
  const chunk_record* if_there(const chunk_record* record);
  const chunk_record* before(tile_id tile, chunk_kind kind, std::size_t bytes);
  // Decoded; none if it should not or cannot be built upon.
  std::optional<chunk_base> base_for(tile_id tile, const chunk_record& record, std::vector<std::byte>& room);
  result<chunk_record> store(tile_id tile, chunk_kind kind, std::span<const std::byte> bytes,
                             std::uint32_t element_bytes);
  void keep(tile_id tile, const blob& state, const std::vector<tile_chunk>& chunks);

  const writer_options options_;
  const std::filesystem::path store_;
  object_folder objects_;
  pack_writer packs_;
  codec_chooser codecs_;
  std::optional<checkpoint_reader> previous_;
  std::map<content_hash, const chunk_record*> previous_chunks_;  // into previous_
  std::map<content_hash, chunk_record> own_;                     // written for this snapshot
  std::map<tile_id, kept_state> kept_;
  std::uint64_t kept_bytes_ = 0;
  std::uint64_t bytes_written_ = 0;
  bool is_open_ = false;
  std::string failure_;  // of an append: the snapshot has failed
};

// `bases`: bases_of() it.
chunk_report to_report(const tile_chunk& chunk, std::span<const chunk_record> bases, incarnation who,
                       timeline_number timeline, era at, step_number step);
struct reported_chunk {
  tile_chunk chunk;
  std::vector<chunk_record> bases;
};
// Reports come over the network: kinds, codecs, names and sizes are checked. That the chunks are there and
// whole is seen at the commit.
result<reported_chunk> from_report(const chunk_report& report);

}  // namespace perdura::storage
