// What the storage tests share: a folder that goes away, state of known contents, a small checkpoint.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "storage/checkpoint_writer.hpp"
#include "storage/manifest.hpp"

namespace perdura::storage {

// In memory where there is such a file system: the tests kill processes, not machines, and hundreds of fsyncs
// on a busy disk take half a minute.
inline std::filesystem::path temporary_root() {
  const std::filesystem::path memory = "/dev/shm";
  return ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path();
}

class temporary_folder {
 public:
  temporary_folder() {
    std::string name = (temporary_root() / "perdura-storage-XXXXXX").string();
    PERDURA_CHECK(::mkdtemp(name.data()) != nullptr, "the temporary folder can be created");
    path_ = name;
  }
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::byte> some_bytes(std::size_t size, std::uint32_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint32_t x = seed * 2654435761U + 1;
  for (auto& b : bytes) {
    x = x * 1664525U + 1013904223U;
    b = static_cast<std::byte>(x >> 24);
  }
  return bytes;
}

// Weights as training leaves them after so many steps: each moves a little at each.
inline std::vector<std::byte> weights_at(std::size_t count, std::uint32_t step, std::uint32_t seed = 0) {
  std::vector<float> values(count);
  const auto starts = some_bytes(count * 2, seed + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const auto start = std::to_integer<int>(starts[2 * i]) * 256 + std::to_integer<int>(starts[2 * i + 1]);
    values[i] = static_cast<float>(start - 32768) * 3.1e-6F;
  }
  for (std::uint32_t s = 0; s < step; ++s) {
    const auto moves = some_bytes(count, seed + 100 + s);
    for (std::size_t i = 0; i < count; ++i)
      values[i] += static_cast<float>(std::to_integer<int>(moves[i]) - 128) * 1e-7F;
  }
  std::vector<std::byte> bytes(count * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

inline constexpr incarnation writer_a{0x1111, 0xaaaa};
inline constexpr incarnation writer_b{0x2222, 0xbbbb};

inline std::uint32_t seed_of(const checkpoint_key& key, std::uint32_t tile) {
  return static_cast<std::uint32_t>(key.step.value * 100 + key.timeline.value * 7 + tile);
}

// A manifest of two tiles and all arrays, without chunks.
inline manifest empty_manifest(const checkpoint_key& key) {
  manifest m;
  m.job = key.job;
  m.job_text = "[model]\nkind = \"dit\"  # \"quoted\", \xc3\xa9\n";
  m.created_by = "test";
  m.created_unix_ms = 1700000000000 + key.step.value;
  m.at = {term_number(3), 4};
  m.standing.step = key.step;
  m.standing.timeline = key.timeline;
  m.standing.plan = {{term_number(3), 4}, 1};
  m.standing.next_plan = {{term_number(3), 4}, 2};
  m.standing.outcome = {1.5, 0.25F, 1e-3F, false, key.step.value, 0.3, 0};
  m.numeric_class = 0xfedcba9876543210;
  m.tiles = {{0, 10, 0}, {10, 6, 1}};
  for (const auto kind : all_kinds) m.arrays.push_back({kind, 4});
  return m;
}

inline std::vector<std::byte> tile_state(const manifest& m, std::uint32_t tile) {
  return some_bytes(std::size_t{m.tiles[tile].size} * 4 * m.arrays.size(), seed_of(m.key(), tile));
}

// Its chunks too: tile 0 in a pack of writer_a, tile 1 of writer_b, or of `second`.
inline manifest written_checkpoint(checkpoint_writer& first, checkpoint_writer& second,
                                   const checkpoint_key& key) {
  manifest m = empty_manifest(key);
  std::uint32_t tile = 0;
  for (auto* writer : {&first, &second}) {
    writer->begin(key);
    auto chunks = writer->append_tile(tile_id(tile), tile_state(m, tile)).value();
    m.chunks.insert(m.chunks.end(), chunks.begin(), chunks.end());
    for (const auto& c : chunks)
      for (auto& base : writer->bases_of(c.record)) m.bases.push_back(std::move(base));
    writer->finish().value();
    ++tile;
  }
  return m;
}

inline manifest written_checkpoint(const std::filesystem::path& store, const checkpoint_key& key) {
  checkpoint_writer a(store, writer_a);
  checkpoint_writer b(store, writer_b);
  return written_checkpoint(a, b, key);
}

inline checkpoint_key at_step(std::uint64_t step, std::uint32_t timeline = 0) {
  return {"job-1", timeline_number(timeline), step_number(step)};
}

}  // namespace perdura::storage
