#include "storage/manifest.hpp"

#include <algorithm>
#include <tuple>

namespace perdura::storage {
namespace {

constexpr std::size_t label_bytes_max = 256;

error invalid(const std::string& why) { return {errc::invalid_argument, "the manifest is refused: " + why}; }

result<void> validate_tiles(const manifest& m) {
  if (m.tiles.empty() || m.tiles.size() > manifest_tiles_max)
    return invalid("it has " + std::to_string(m.tiles.size()) + " tiles; 1 to " +
                   std::to_string(manifest_tiles_max) + " are allowed");
  std::uint64_t next = 0;
  for (std::size_t i = 0; i < m.tiles.size(); ++i) {
    if (m.tiles[i].first != next || m.tiles[i].size == 0)
      return invalid("tile " + std::to_string(i) + " begins at element " + std::to_string(m.tiles[i].first) +
                     " with size " + std::to_string(m.tiles[i].size) + "; expected to begin at " +
                     std::to_string(next) + " and not to be empty");
    next += m.tiles[i].size;
  }
  return {};
}

result<void> validate_arrays(const manifest& m) {
  if (m.arrays.empty() || m.arrays.size() > all_kinds.size())
    return invalid("it has " + std::to_string(m.arrays.size()) + " arrays; 1 to " +
                   std::to_string(all_kinds.size()) + " are allowed");
  for (std::size_t i = 0; i < m.arrays.size(); ++i) {
    if (i > 0 && m.arrays[i - 1].kind >= m.arrays[i].kind) return invalid("its arrays are not in order");
    if (!parse_kind(static_cast<std::uint8_t>(m.arrays[i].kind)))
      return invalid("it has an array of unknown kind");
    if (m.arrays[i].element_bytes == 0 || m.arrays[i].element_bytes > 8)
      return invalid("its array " + std::string(to_string(m.arrays[i].kind)) + " has elements of " +
                     std::to_string(m.arrays[i].element_bytes) + " bytes; 1 to 8 are allowed");
  }
  return {};
}

result<void> validate_tensors(const manifest& m) {
  if (m.tensors.size() > manifest_tensors_max) return invalid("it has too many tensors");
  const std::uint64_t elements = m.tiles.back().first + m.tiles.back().size;
  for (const auto& t : m.tensors) {
    bool fits = t.name.size() <= label_bytes_max && t.shape.size() <= tensor_rank_max && t.first <= elements;
    std::uint64_t size = 1;
    for (std::size_t i = 0; fits && i < t.shape.size(); ++i) {
      fits = t.shape[i] != 0 && size <= elements / t.shape[i];
      size *= t.shape[i];
    }
    if (!fits || size > elements - t.first)
      return invalid("the tensor '" + t.name.substr(0, label_bytes_max) + "' does not fit into " +
                     std::to_string(elements) + " elements");
  }
  return {};
}

result<void> validate_chunk(const tile_chunk& c, std::uint64_t size_expected) {
  const std::string what = "tile " + to_string(c.tile) + " " + to_string(c.kind);
  if (!parse_pack_name(c.record.pack)) return invalid("the pack of " + what + " has no name of a pack");
  if (!parse_codec(static_cast<std::uint8_t>(c.record.codec)))
    return invalid("the codec of " + what + " is unknown");
  if (c.record.decoded_size != size_expected)
    return invalid(what + " has " + std::to_string(c.record.decoded_size) + " bytes; expected " +
                   std::to_string(size_expected));
  if (c.record.stored_size > chunk_bytes_max || size_expected > chunk_bytes_max)
    return invalid(what + " is larger than a chunk may be");
  if (c.record.codec == chunk_codec::raw && c.record.stored_size != c.record.decoded_size)
    return invalid(what + " is raw, but its two sizes differ");
  return {};
}

// Exactly once: the chunks are, one by one, the product of tiles and arrays.
result<void> validate_coverage(const manifest& m) {
  std::size_t next = 0;
  for (std::uint32_t t = 0; t < m.tiles.size(); ++t)
    for (const auto& array : m.arrays) {
      const std::string what = "tile " + std::to_string(t) + " " + to_string(array.kind);
      if (next == m.chunks.size()) return invalid(what + " is missing");
      const tile_chunk& c = m.chunks[next];
      if (c.tile.value != t || c.kind != array.kind)
        return invalid("expected " + what + ", but tile " + to_string(c.tile) + " " + to_string(c.kind) +
                       " comes next: a chunk is missing, there twice or out of order");
      const std::uint64_t size_expected = std::uint64_t{m.tiles[t].size} * array.element_bytes;
      if (auto valid = validate_chunk(c, size_expected); !valid) return valid;
      ++next;
    }
  if (next != m.chunks.size())
    return invalid("tile " + to_string(m.chunks[next].tile) + " " + to_string(m.chunks[next].kind) +
                   " is there twice, or is none of its tiles and arrays");
  return {};
}

}  // namespace

std::uint64_t manifest::total_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& c : chunks) sum += c.record.decoded_size;
  return sum;
}

const tile_chunk* manifest::find(tile_id tile, chunk_kind kind) const {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::size_t at = tile.value * arrays.size() + i;
    if (arrays[i].kind == kind && at < chunks.size()) return &chunks[at];
  }
  return nullptr;
}

void sort_chunks(manifest& m) {
  std::sort(m.chunks.begin(), m.chunks.end(), [](const tile_chunk& a, const tile_chunk& b) {
    return std::tie(a.tile, a.kind) < std::tie(b.tile, b.kind);
  });
}

result<void> validate(const manifest& m) {
  if (!is_job_name(m.job))
    return invalid(
        "'" + m.job.substr(0, label_bytes_max) +
        "' is not a job's name: up to 64 letters, digits, '.', '_' and '-', not starting with '.'");
  if (m.job_text.size() > job_text_bytes_max)
    return invalid("its job file is larger than " + std::to_string(job_text_bytes_max) + " bytes");
  if (m.created_by.size() > label_bytes_max) return invalid("created_by is longer than 256 bytes");
  if (auto valid = validate_tiles(m); !valid) return valid;
  if (auto valid = validate_arrays(m); !valid) return valid;
  if (auto valid = validate_tensors(m); !valid) return valid;
  return validate_coverage(m);
}

}  // namespace perdura::storage
