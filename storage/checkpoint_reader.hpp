// Loads a checkpoint by its manifest and packs, without the index: what workers and `perdura generate` do.
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/manifest.hpp"
#include "storage/object_folder.hpp"
#include "storage/pack.hpp"

namespace perdura::storage {

// Not thread-safe; several readers may be open at once.
class checkpoint_reader {
 public:
  static result<checkpoint_reader> open(const std::filesystem::path& store, const checkpoint_key& key);
  // Of a valid manifest that need not be in the store yet.
  checkpoint_reader(const std::filesystem::path& store, manifest m)
      : packs_(packs_folder(store)), manifest_(std::move(m)) {}

  const manifest& contents() const { return manifest_; }
  // Fills `out`, which has the array's size in bytes; every byte is verified. An error says which tile, file
  // and offset; `out` then holds garbage.
  result<void> load(tile_id tile, chunk_kind kind, std::span<std::byte> out);
  // One of its chunks or bases, and whatever that builds on.
  result<void> load(const chunk_record& record, std::span<std::byte> out);
  // All arrays of a tile, one after the other, as trainer::install_tile takes them.
  result<std::vector<std::byte>> load_tile(tile_id tile);
  // Reads and verifies everything; gives one line for each chunk that is not right.
  std::vector<std::string> verify();
  // That each chunk is where the manifest says, by its record's header alone; the first that is not is named.
  result<void> check_headers();
  // The same of one of its chunks or bases, and of whatever that builds on.
  result<void> check_headers(const chunk_record& record);

 private:
  result<const pack_reader*> pack(const std::string& name);
  error at_chunk(const tile_chunk& chunk, const error& cause) const;

  std::filesystem::path packs_;
  manifest manifest_;
  std::map<std::string, pack_reader> open_packs_;
};

// The manifest of one checkpoint, verified; it may have been condemned meanwhile.
result<manifest> read_manifest(const object_folder& objects, const checkpoint_key& key);

// All checkpoints in the store, of `job` or, where it is empty, of every job; newest first within a job.
// Those being deleted are left out.
result<std::vector<checkpoint_key>> list_checkpoints(const object_folder& objects, const std::string& job);

}  // namespace perdura::storage
