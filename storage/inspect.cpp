#include "storage/inspect.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "storage/checkpoint_reader.hpp"

namespace perdura::storage {
namespace {

using place = std::pair<std::string, std::uint64_t>;  // pack, offset

std::map<place, std::uint64_t> needed_by(const manifest& m) {
  std::map<place, std::uint64_t> chunks;
  for (const auto& c : m.chunks) chunks[{c.record.pack, c.record.offset}] = c.record.stored_size;
  for (const auto& r : m.bases) chunks[{r.pack, r.offset}] = r.stored_size;
  return chunks;
}

// Elements that belong together: a tensor, or the tiles of a stage.
struct extent {
  std::string name;
  std::uint64_t first{};
  std::uint64_t size{};
};

std::vector<extent> extents_of(const manifest& m) {
  std::vector<extent> all;
  for (const auto& t : m.tensors) {
    std::uint64_t size = 1;
    for (const auto n : t.shape) size *= n;
    all.push_back({t.name, t.first, size});
  }
  if (!all.empty()) return all;
  for (const auto& t : m.tiles) {
    const std::string name = "stage " + std::to_string(t.stage);
    if (all.empty() || all.back().name != name) all.push_back({name, t.first, 0});
    all.back().size += t.size;
  }
  return all;
}

struct sums {
  std::uint64_t changed = 0;
  double largest = 0;
  double squares = 0;
  double squares_before = 0;
  void add(float before, float after) {
    changed += std::memcmp(&before, &after, sizeof before) == 0 ? 0 : 1;
    const double d = static_cast<double>(after) - static_cast<double>(before);
    // Written so that a NaN is the largest of all.
    if (!(std::abs(d) <= largest)) largest = std::abs(d);
    squares += d * d;
    squares_before += static_cast<double>(before) * static_cast<double>(before);
  }
};

}  // namespace

std::map<chunk_kind, kind_usage> usage_by_kind(const manifest& m) {
  std::map<chunk_kind, kind_usage> usage;
  std::set<std::pair<std::string_view, std::uint64_t>> seen;
  for (const auto& c : m.chunks) {
    auto& u = usage[c.kind];
    ++u.chunks;
    ++u.by_codec[c.record.codec];
    u.chain_most = std::max(u.chain_most, m.chain_of(c.record).size());
    u.decoded += c.record.decoded_size;
    if (seen.emplace(c.record.pack, c.record.offset).second) u.stored += c.record.stored_size;
  }
  return usage;
}

result<store_usage> usage_of(const std::filesystem::path& store) {
  const object_folder objects(store);
  const auto keys = list_checkpoints(objects, "");
  if (!keys) return keys.failure();
  store_usage usage;
  std::map<place, std::size_t> users;
  std::set<std::string> packs;
  std::vector<std::map<place, std::uint64_t>> needed;
  for (const auto& key : *keys) {
    const auto m = read_manifest(objects, key);
    if (!m) {
      if (m.failure().code != errc::not_found) usage.unreadable.push_back(m.failure().message);
      continue;
    }
    needed.push_back(needed_by(*m));
    usage.checkpoints.push_back({key, m->total_bytes(), 0, 0});
    for (const auto& [at, bytes] : needed.back()) {
      if (++users[at] == 1) usage.needed += bytes;
      packs.insert(at.first);
    }
  }
  for (std::size_t i = 0; i < needed.size(); ++i)
    for (const auto& [at, bytes] : needed[i]) {
      usage.checkpoints[i].stored += bytes;
      if (users[at] == 1) usage.checkpoints[i].alone += bytes;
    }
  std::error_code failed;
  std::filesystem::directory_iterator at(packs_folder(store), failed);
  for (const std::filesystem::directory_iterator end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;
    const auto bytes = at->file_size(gone);
    if (gone || !parse_pack_name(at->path().filename().string())) continue;
    ++usage.pack_files;
    usage.packs += bytes;
    if (!packs.contains(at->path().filename().string())) usage.unneeded_packs += bytes;
  }
  if (failed && failed != std::errc::no_such_file_or_directory)
    return error{errc::io, "cannot list " + packs_folder(store).string() + ": " + failed.message()};
  return usage;
}

result<std::vector<difference>> differences(const std::filesystem::path& store, const checkpoint_key& a,
                                            const checkpoint_key& b, chunk_kind kind) {
  auto before = checkpoint_reader::open(store, a);
  if (!before) return before.failure();
  auto after = checkpoint_reader::open(store, b);
  if (!after) return after.failure();
  const manifest& m = before->contents();
  if (m.tiles != after->contents().tiles || m.arrays != after->contents().arrays)
    return error{errc::invalid_argument, to_string(a) + " and " + to_string(b) + " are of different models"};
  const auto extents = extents_of(m);
  std::vector<sums> of(extents.size());
  std::vector<std::byte> x;
  std::vector<std::byte> y;
  for (std::uint32_t t = 0; t < m.tiles.size(); ++t) {
    const auto* was = m.find(tile_id(t), kind);
    const auto* is = after->contents().find(tile_id(t), kind);
    const std::uint64_t bytes = std::uint64_t{m.tiles[t].size} * sizeof(float);
    if (was == nullptr || is == nullptr || was->record.decoded_size != bytes)
      return error{errc::invalid_argument,
                   std::string("there are no ") + to_string(kind) + " of four bytes each"};
    x.resize(bytes);
    y.resize(bytes);
    if (auto loaded = before->load(tile_id(t), kind, x); !loaded) return loaded.failure();
    if (auto loaded = after->load(tile_id(t), kind, y); !loaded) return loaded.failure();
    for (std::size_t e = 0; e < extents.size(); ++e) {
      const auto begin = std::max(extents[e].first, m.tiles[t].first);
      const auto end = std::min(extents[e].first + extents[e].size, m.tiles[t].first + m.tiles[t].size);
      for (auto n = begin; n < end; ++n) {
        float p = 0;
        float q = 0;
        std::memcpy(&p, x.data() + (n - m.tiles[t].first) * sizeof p, sizeof p);
        std::memcpy(&q, y.data() + (n - m.tiles[t].first) * sizeof q, sizeof q);
        of[e].add(p, q);
      }
    }
  }
  std::vector<difference> found;
  for (std::size_t e = 0; e < extents.size(); ++e) {
    const auto n = static_cast<double>(std::max<std::uint64_t>(1, extents[e].size));
    found.push_back({extents[e].name, extents[e].size, of[e].changed, of[e].largest,
                     std::sqrt(of[e].squares / n),
                     of[e].squares_before > 0 ? std::sqrt(of[e].squares / of[e].squares_before) : 0.0});
  }
  return found;
}

}  // namespace perdura::storage
