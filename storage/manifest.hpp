// A checkpoint: one immutable object that says which chunks are the state, in global coordinates. It is
// written last; the checkpoint exists when it does. Chunks may have been written for an earlier checkpoint
// of this job or of another; of deltas, all that they build on is named too.
//
// Text: one line of JSON (fields always in the same order, hashes and bit patterns as hexadecimal digits,
// floating point as bits so that a NaN survives), then one line "sha256 <hash of the first line without its
// newline>". There is one text for a manifest: a text that decodes encodes to itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"
#include "actors/base/version.hpp"
#include "storage/chunk.hpp"
#include "storage/layout.hpp"

namespace perdura::storage {

inline constexpr std::uint32_t manifest_format_version = checkpoint_format_version;
inline constexpr std::uint64_t manifest_bytes_max = std::uint64_t{64} << 20;
inline constexpr std::size_t manifest_tiles_max = std::size_t{1} << 16;
inline constexpr std::size_t manifest_tensors_max = std::size_t{1} << 16;
inline constexpr std::size_t tensor_rank_max = 8;
inline constexpr std::size_t job_text_bytes_max = std::size_t{1} << 20;

// An array that every tile has.
struct state_array {
  chunk_kind kind{};
  std::uint32_t element_bytes = 4;
  bool operator==(const state_array&) const = default;
};

// For people and for exports; loading needs tiles alone.
struct tensor_entry {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t first{};  // element of the flat parameter vector
  bool operator==(const tensor_entry&) const = default;
};

struct manifest {
  std::string job;
  std::string job_text;    // the job file: a checkpoint says by itself what it is of
  std::string created_by;  // program, version and coordinator's term, for people
  std::uint64_t created_unix_ms{};
  era at;  // under which it was accepted
  // Of the step whose state this is: with the tiles, all that training goes on from.
  verdict standing;
  std::uint64_t numeric_class{};
  std::vector<tile> tiles;  // in order, without gaps, from element 0
  std::vector<state_array> arrays;
  std::vector<tensor_entry> tensors;  // may be empty
  std::vector<tile_chunk> chunks;     // by tile, then in the order of `arrays`: one for each
  std::vector<chunk_record> bases;    // sorted; those that deltas of these and of `chunks` need, no others
  bool operator==(const manifest&) const = default;

  checkpoint_key key() const { return {job, standing.timeline, standing.step}; }
  std::uint64_t total_bytes() const;   // decoded
  std::uint64_t stored_bytes() const;  // of the different chunks that it needs, bases too
  // Checked by validate() to exist for each tile and array.
  const tile_chunk* find(tile_id tile, chunk_kind kind) const;
  const chunk_record* find_base(const content_hash& hash) const;
  // What has to be decoded before the record can be, nearest first. Of a valid manifest's records.
  std::vector<const chunk_record*> chain_of(const chunk_record& record) const;
};

// Puts chunks and bases, as they were reported, into the manifest's order; of a base that is named twice the
// first stays.
void sort_chunks(manifest& m);

// Each tile and array exactly once, sizes that fit, names and counts in their limits. Errors say which.
result<void> validate(const manifest& m);

// Of a valid manifest.
std::string encode(const manifest& m);
// Hash, version, syntax, limits, validate(): what comes back can be relied on. Hostile text is only refused.
result<manifest> decode_manifest(std::string_view text);

}  // namespace perdura::storage
