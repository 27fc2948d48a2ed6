// What a worker does of a checkpoint: its tiles become chunks in its own packs, and durable; then it reports
// them. The coordinator alone makes a checkpoint of them (index/checkpoint_index.hpp).
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "actors/base/control.hpp"
#include "actors/base/result.hpp"
#include "storage/chunk.hpp"
#include "storage/pack.hpp"

namespace perdura::storage {

// One snapshot after the other; each has packs of its own, so that retention frees whole files. Not
// thread-safe.
class checkpoint_writer {
 public:
  checkpoint_writer(const std::filesystem::path& store, incarnation who, pack_options options = {});

  // Begins a snapshot; one that was not finished is given up.
  void begin(const checkpoint_key& snapshot);
  // Must not be reported before finish() has succeeded.
  result<tile_chunk> append(tile_id tile, chunk_kind kind, std::span<const std::byte> bytes);
  // All arrays of a tile, equally long and one after the other, as trainer::copy_tile gives them.
  result<std::vector<tile_chunk>> append_tile(tile_id tile, std::span<const std::byte> state,
                                              std::span<const chunk_kind> kinds = all_kinds);
  // On success all that was appended is durable; on failure none of it counts: go on with begin().
  result<void> finish();

 private:
  pack_writer packs_;
  bool is_open_ = false;
  std::string failure_;  // of an append: the snapshot has failed
};

chunk_report to_report(const tile_chunk& chunk, incarnation who, timeline_number timeline, era at,
                       step_number step);
// Reports come over the network: kind, pack and size are checked, and that the pack is the reporter's own.
result<tile_chunk> from_report(const chunk_report& report);

}  // namespace perdura::storage
