#include "storage/index/references.hpp"

#include <rocksdb/write_batch.h>

#include <set>

namespace perdura::storage {
namespace {

constexpr std::size_t hash_bytes = 32;
constexpr std::size_t chunk_value_bytes = 25;  // and the base's hash, of a delta

std::string chunk_value(std::uint64_t references, const chunk_record& record) {
  std::string value;
  append_number(value, references);
  append_number(value, record.stored_size);
  append_number(value, record.decoded_size);
  value += static_cast<char>(record.codec);
  if (record.base) value += chunk_key_prefix(*record.base);
  return value;
}

error corrupt_row(const std::string& what) {
  return {errc::corrupt, "the index has a damaged row of " + what + ": rebuild it"};
}

// The new count; the rows and the manifests they come from change together, so it never goes below zero.
result<std::uint64_t> changed(std::uint64_t count, std::int64_t change, const std::string& what) {
  if (change < 0 && count < static_cast<std::uint64_t>(-change)) return corrupt_row(what);
  return count + static_cast<std::uint64_t>(change);
}

}  // namespace

std::string manifest_key_prefix(std::string_view job) { return std::string(job) + '\0'; }

std::string manifest_key(const checkpoint_key& key) {
  std::string row = manifest_key_prefix(key.job);
  append_number(row, key.timeline.value);
  append_number(row, key.step.value);
  return row;
}

std::string chunk_key_prefix(const content_hash& hash) {
  return {reinterpret_cast<const char*>(hash.bytes.data()), hash.bytes.size()};
}

std::string chunk_key(const chunk_record& record) {
  std::string key = chunk_key_prefix(record.hash) + record.pack;
  append_number(key, record.offset);
  return key;
}

result<chunk_row> decode_chunk_row(std::string_view key, std::string_view value) {
  const bool has_base = value.size() == chunk_value_bytes + hash_bytes;
  if (key.size() <= hash_bytes + 8 || (value.size() != chunk_value_bytes && !has_base))
    return corrupt_row("a chunk");
  chunk_row row;
  for (std::size_t i = 0; i < hash_bytes; ++i) row.record.hash.bytes[i] = static_cast<std::uint8_t>(key[i]);
  row.record.pack = key.substr(hash_bytes, key.size() - hash_bytes - 8);
  row.record.offset = number_at_end(key);
  row.references = number_at_end(value.substr(0, 8));
  row.record.stored_size = number_at_end(value.substr(0, 16));
  row.record.decoded_size = number_at_end(value.substr(0, 24));
  const auto codec = parse_codec(static_cast<std::uint8_t>(value[chunk_value_bytes - 1]));
  if (!codec || (*codec == chunk_codec::delta) != has_base) return corrupt_row("a chunk");
  row.record.codec = *codec;
  if (has_base) {
    row.record.base.emplace();
    for (std::size_t i = 0; i < hash_bytes; ++i)
      row.record.base->bytes[i] = static_cast<std::uint8_t>(value[chunk_value_bytes + i]);
  }
  return row;
}

void reference_changes::count(const manifest& m, std::int64_t change) {
  std::set<std::string_view> packs;
  const auto count = [&](const chunk_record& record) {
    chunks_[record] += change;
    packs.insert(record.pack);
  };
  for (const auto& chunk : m.chunks) count(chunk.record);
  for (const auto& base : m.bases) count(base);
  for (const auto pack : packs) packs_[std::string(pack)] += change;
}

result<void> reference_changes::put_into(rocksdb::WriteBatch& batch, const rocks_store& store,
                                         bool from_nothing) const {
  for (const auto& [record, change] : chunks_) {
    const std::string key = chunk_key(record);
    std::uint64_t references = 0;
    const auto found =
        from_nothing ? result<std::optional<std::string>>(std::nullopt) : store.get(chunks_family, key);
    if (!found) return found.failure();
    if (*found) {
      const auto row = decode_chunk_row(key, **found);
      if (!row) return row.failure();
      references = row->references;
    }
    const auto next = changed(references, change, "chunk " + to_string(record.hash));
    if (!next) return next.failure();
    if (*next == 0) batch.Delete(store.family(chunks_family), key);
    if (*next != 0) batch.Put(store.family(chunks_family), key, chunk_value(*next, record));
  }
  for (const auto& [pack, change] : packs_) {
    const auto found =
        from_nothing ? result<std::optional<std::string>>(std::nullopt) : store.get(packs_family, pack);
    if (!found) return found.failure();
    if (*found && (*found)->size() != 8) return corrupt_row("pack " + pack);
    const auto next = changed(*found ? number_at_end(**found) : 0, change, "pack " + pack);
    if (!next) return next.failure();
    std::string value;
    append_number(value, *next);
    if (*next == 0) batch.Delete(store.family(packs_family), pack);
    if (*next != 0) batch.Put(store.family(packs_family), pack, value);
  }
  return {};
}

}  // namespace perdura::storage
