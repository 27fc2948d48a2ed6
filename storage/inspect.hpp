// What a person asks of a store: what a checkpoint takes and shares, and how two differ. By manifests and
// packs alone, so it needs no index and disturbs nobody.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/manifest.hpp"

namespace perdura::storage {

// Of one kind of array in one checkpoint.
struct kind_usage {
  std::size_t chunks{};
  std::map<chunk_codec, std::size_t> by_codec;
  std::size_t chain_most{};  // deltas on top of each other
  std::uint64_t decoded{};   // bytes
  std::uint64_t stored{};    // its own chunks, without what they build on
};
std::map<chunk_kind, kind_usage> usage_by_kind(const manifest& m);

struct checkpoint_usage {
  checkpoint_key key;
  std::uint64_t decoded{};
  std::uint64_t stored{};  // of all that it needs
  std::uint64_t alone{};   // of that, what no other checkpoint needs
};
struct store_usage {
  std::vector<checkpoint_usage> checkpoints;  // as list_checkpoints() has them
  std::uint64_t needed{};                     // bytes of chunks that some checkpoint needs
  std::uint64_t packs{};                      // bytes of all packs
  std::size_t pack_files{};
  std::uint64_t unneeded_packs{};       // bytes of packs that no checkpoint needs
  std::vector<std::string> unreadable;  // manifests, one line each
};
// Of every checkpoint of the store; errors: io.
result<store_usage> usage_of(const std::filesystem::path& store);

// How far what is called `name` has moved between two checkpoints of the same layout.
struct difference {
  std::string name;  // a tensor; where the manifest names none, a stage of the model
  std::uint64_t elements{};
  std::uint64_t changed{};
  double largest{};    // absolute, of one element
  double root_mean{};  // square, of the differences
  double relative{};   // to the root mean square of the first
};
// Of one kind of array with elements of four bytes. Errors: invalid_argument (layouts differ), io, corrupt.
result<std::vector<difference>> differences(const std::filesystem::path& store, const checkpoint_key& a,
                                            const checkpoint_key& b, chunk_kind kind);

}  // namespace perdura::storage
