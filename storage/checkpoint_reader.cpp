#include "storage/checkpoint_reader.hpp"

#include <algorithm>

namespace perdura::storage {
namespace {
// Files held open at once; a checkpoint of more packs reopens them as it goes.
constexpr std::size_t open_packs_max = 64;
}  // namespace

result<manifest> read_manifest(const object_folder& objects, const checkpoint_key& key) {
  if (!is_job_name(key.job))
    return error{errc::invalid_argument, "'" + key.job.substr(0, 64) + "' names no job"};
  const auto text = objects.get(manifest_object(key));
  if (!text)
    return error{text.failure().code, "no checkpoint " + to_string(key) + ": " + text.failure().message};
  auto m = decode_manifest(*text);
  const auto file = objects.root() / manifest_object(key);
  if (!m) return error{m.failure().code, file.string() + ": " + m.failure().message};
  if (m->key() != key)
    return error{errc::corrupt, file.string() + " is the manifest of " + to_string(m->key())};
  return m;
}

result<std::vector<checkpoint_key>> list_checkpoints(const object_folder& objects, const std::string& job) {
  if (!job.empty() && !is_job_name(job))
    return error{errc::invalid_argument, "'" + job.substr(0, 64) + "' names no job"};
  auto names = objects.list(job.empty() ? "manifests" : "manifests/" + job);
  if (!names) return names.failure();
  auto tombstones = objects.list("tombstones");
  if (!tombstones) return tombstones.failure();
  std::vector<checkpoint_key> keys;
  for (const auto& name : *names) {
    auto key = parse_checkpoint_object(name);
    if (key && !std::binary_search(tombstones->begin(), tombstones->end(), tombstone_object(*key)))
      keys.push_back(*std::move(key));
  }
  std::sort(keys.begin(), keys.end(), [](const checkpoint_key& a, const checkpoint_key& b) {
    return a.job != b.job ? a.job < b.job : b < a;
  });
  return keys;
}

result<checkpoint_reader> checkpoint_reader::open(const std::filesystem::path& store,
                                                  const checkpoint_key& key) {
  auto m = read_manifest(object_folder(store), key);
  if (!m) return m.failure();
  return checkpoint_reader(store, *std::move(m));
}

result<void> checkpoint_reader::load(tile_id tile, chunk_kind kind, std::span<std::byte> out) {
  const tile_chunk* chunk = manifest_.find(tile, kind);
  if (chunk == nullptr)
    return error{errc::not_found, "checkpoint " + to_string(manifest_.key()) + " has no tile " +
                                      to_string(tile) + " " + to_string(kind)};
  if (auto read = load(chunk->record, out); !read) return at_chunk(*chunk, read.failure());
  return {};
}

result<void> checkpoint_reader::load(const chunk_record& record, std::span<std::byte> out) {
  const auto chain = manifest_.chain_of(record);
  std::vector<std::byte> base;
  std::vector<std::byte> next;
  for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
    auto file = pack((*at)->pack);
    if (!file) return file.failure();
    next.resize((*at)->decoded_size);
    if (auto read = (*file)->read(**at, next, base); !read) return read;
    std::swap(base, next);
  }
  auto file = pack(record.pack);
  if (!file) return file.failure();
  return (*file)->read(record, out, base);
}

result<std::vector<std::byte>> checkpoint_reader::load_tile(tile_id tile) {
  std::uint64_t size = 0;
  for (const auto& array : manifest_.arrays)
    if (const auto* chunk = manifest_.find(tile, array.kind)) size += chunk->record.decoded_size;
  std::vector<std::byte> state(size);
  std::span<std::byte> rest(state);
  for (const auto& array : manifest_.arrays) {
    const auto* chunk = manifest_.find(tile, array.kind);
    const std::uint64_t bytes = chunk == nullptr ? 0 : chunk->record.decoded_size;
    if (auto loaded = load(tile, array.kind, rest.first(bytes)); !loaded) return loaded.failure();
    rest = rest.subspan(bytes);
  }
  return state;
}

std::vector<std::string> checkpoint_reader::verify() {
  std::vector<std::string> failures;
  std::vector<std::byte> bytes;
  for (const auto& chunk : manifest_.chunks) {
    bytes.resize(chunk.record.decoded_size);
    if (auto loaded = load(chunk.tile, chunk.kind, bytes); !loaded)
      failures.push_back(loaded.failure().message);
  }
  return failures;
}

result<void> checkpoint_reader::check_headers() {
  const auto check = [&](const chunk_record& record) -> result<void> {
    auto file = pack(record.pack);
    if (!file) return file.failure();
    return (*file)->check(record);
  };
  for (const auto& chunk : manifest_.chunks)
    if (auto checked = check(chunk.record); !checked) return at_chunk(chunk, checked.failure());
  for (const auto& base : manifest_.bases)
    if (auto checked = check(base); !checked)
      return error{checked.failure().code, "base " + to_string(base.hash) + " of checkpoint " +
                                               to_string(manifest_.key()) + ": " + checked.failure().message};
  return {};
}

result<void> checkpoint_reader::check_headers(const chunk_record& record) {
  auto file = pack(record.pack);
  if (!file) return file.failure();
  if (auto checked = (*file)->check(record); !checked) return checked;
  for (const auto* base : manifest_.chain_of(record)) {
    file = pack(base->pack);
    if (!file) return file.failure();
    if (auto checked = (*file)->check(*base); !checked) return checked;
  }
  return {};
}

result<const pack_reader*> checkpoint_reader::pack(const std::string& name) {
  if (auto known = open_packs_.find(name); known != open_packs_.end()) return &known->second;
  if (open_packs_.size() >= open_packs_max) open_packs_.clear();
  auto opened = pack_reader::open(packs_, name);
  if (!opened) return opened.failure();
  return &open_packs_.emplace(name, *std::move(opened)).first->second;
}

error checkpoint_reader::at_chunk(const tile_chunk& chunk, const error& cause) const {
  return {cause.code, "tile " + to_string(chunk.tile) + " " + to_string(chunk.kind) + " of checkpoint " +
                          to_string(manifest_.key()) + ", in " + chunk.record.pack + " at offset " +
                          std::to_string(chunk.record.offset) + ": " + cause.message};
}

}  // namespace perdura::storage
