#include "storage/manifest.hpp"

#include <algorithm>
#include <set>
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

result<void> validate_record(const chunk_record& r, const std::string& what) {
  if (!parse_pack_name(r.pack)) return invalid("the pack of " + what + " has no name of a pack");
  if (!parse_codec(static_cast<std::uint8_t>(r.codec)))
    return invalid("the codec of " + what + " is unknown");
  if (r.stored_size > chunk_bytes_max || r.decoded_size > chunk_bytes_max)
    return invalid(what + " is larger than a chunk may be");
  if (r.codec == chunk_codec::raw && r.stored_size != r.decoded_size)
    return invalid(what + " is raw, but its two sizes differ");
  if ((r.codec == chunk_codec::delta) != r.base.has_value())
    return invalid(what + " has to name a base if it is a delta, and only then");
  return {};
}

result<void> validate_chunk(const tile_chunk& c, std::uint64_t size_expected) {
  const std::string what = "tile " + to_string(c.tile) + " " + to_string(c.kind);
  if (c.record.decoded_size != size_expected)
    return invalid(what + " has " + std::to_string(c.record.decoded_size) + " bytes; expected " +
                   std::to_string(size_expected));
  return validate_record(c.record, what);
}

// Every delta finds its base, of its own size, within the longest chain allowed; and no base is there for
// nothing.
result<void> validate_bases(const manifest& m) {
  for (std::size_t i = 0; i < m.bases.size(); ++i) {
    const std::string what = "base " + to_string(m.bases[i].hash);
    if (i > 0 && m.bases[i - 1].hash >= m.bases[i].hash) return invalid("its bases are not in order");
    if (auto valid = validate_record(m.bases[i], what); !valid) return valid;
  }
  std::vector<std::size_t> length(m.bases.size(), 0);  // of the chain that ends with the base; 0: not known
  const auto follow = [&](const chunk_record& from) -> result<void> {
    std::vector<std::size_t> walked;
    std::size_t known = 0;
    for (const chunk_record* r = &from; r->base;) {
      const chunk_record* next = m.find_base(*r->base);
      if (next == nullptr) return invalid("the base " + to_string(*r->base) + " of a delta is missing");
      if (next->decoded_size != r->decoded_size)
        return invalid("the base " + to_string(next->hash) + " is of another size than what builds on it");
      const auto at = static_cast<std::size_t>(next - m.bases.data());
      if ((known = length[at]) != 0) break;
      walked.push_back(at);
      if (walked.size() > chain_length_max) break;
      r = next;
    }
    if (walked.size() + known > chain_length_max)
      return invalid("more than " + std::to_string(chain_length_max) + " deltas build on each other");
    for (auto at = walked.rbegin(); at != walked.rend(); ++at) length[*at] = ++known;
    return {};
  };
  for (const auto& c : m.chunks)
    if (auto valid = follow(c.record); !valid) return valid;
  for (std::size_t i = 0; i < m.bases.size(); ++i)
    if (length[i] == 0) return invalid("nothing builds on the base " + to_string(m.bases[i].hash));
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

std::uint64_t manifest::stored_bytes() const {
  std::set<std::pair<std::string_view, std::uint64_t>> seen;
  std::uint64_t sum = 0;
  const auto add = [&](const chunk_record& r) {
    if (seen.emplace(r.pack, r.offset).second) sum += r.stored_size;
  };
  for (const auto& c : chunks) add(c.record);
  for (const auto& r : bases) add(r);
  return sum;
}

const tile_chunk* manifest::find(tile_id tile, chunk_kind kind) const {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const std::size_t at = tile.value * arrays.size() + i;
    if (arrays[i].kind == kind && at < chunks.size()) return &chunks[at];
  }
  return nullptr;
}

const chunk_record* manifest::find_base(const content_hash& hash) const {
  const auto at = std::lower_bound(bases.begin(), bases.end(), hash,
                                   [](const chunk_record& r, const content_hash& h) { return r.hash < h; });
  return at == bases.end() || at->hash != hash ? nullptr : &*at;
}

std::vector<const chunk_record*> manifest::chain_of(const chunk_record& record) const {
  std::vector<const chunk_record*> chain;
  for (const chunk_record* r = &record; r->base && chain.size() < chain_length_max;) {
    r = find_base(*r->base);
    if (r == nullptr) break;
    chain.push_back(r);
  }
  return chain;
}

void sort_chunks(manifest& m) {
  const auto by_hash = [](const chunk_record& a, const chunk_record& b) { return a.hash < b.hash; };
  std::stable_sort(m.bases.begin(), m.bases.end(), by_hash);
  const auto same = [](const chunk_record& a, const chunk_record& b) { return a.hash == b.hash; };
  m.bases.erase(std::unique(m.bases.begin(), m.bases.end(), same), m.bases.end());
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
  if (auto valid = validate_coverage(m); !valid) return valid;
  return validate_bases(m);
}

}  // namespace perdura::storage
