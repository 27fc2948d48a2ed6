#include "storage/index/checkpoint_index.hpp"

#include <rocksdb/write_batch.h>

#include <algorithm>
#include <chrono>
#include <iterator>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/file.hpp"
#include "storage/index/references.hpp"
#include "storage/index/rocks_store.hpp"

namespace perdura::storage {
namespace {

// A put takes milliseconds: what is older was left by a process that died.
constexpr std::chrono::hours leftover_age{1};

result<std::unique_ptr<rocks_store>> open_rows(const std::filesystem::path& folder) {
  const std::vector<std::string> families{"manifests", "chunks", "packs", "leases"};
  auto rows = rocks_store::open(folder, families, checkpoint_index_format_version);
  if (!rows && rows.failure().code == errc::version_mismatch)
    return error{errc::version_mismatch, rows.failure().message +
                                             "; it holds nothing of its own: remove the folder "
                                             "and it is rebuilt from the manifests"};
  if (rows || rows.failure().code != errc::corrupt) return rows;
  log::error("the checkpoint index is damaged and is rebuilt from the manifests: " + rows.failure().message);
  std::error_code failed;
  std::filesystem::remove_all(folder, failed);
  if (failed) return error{errc::io, "cannot remove " + folder.string() + ": " + failed.message()};
  return rocks_store::open(folder, families, checkpoint_index_format_version);
}

checkpoint_key key_of_row(std::string_view row) {
  PERDURA_CHECK(row.size() > 13, "a manifest's row is a job, a zero, a timeline and a step");
  const std::string_view job = row.substr(0, row.size() - 13);
  const auto step = number_at_end(row);
  const auto timeline = static_cast<std::uint32_t>(number_at_end(row.substr(0, row.size() - 8)));
  return {std::string(job), timeline_number(timeline), step_number(step)};
}

}  // namespace

checkpoint_index::checkpoint_index(std::filesystem::path store, std::unique_ptr<rocks_store> rows,
                                   checkpoint_index_options options)
    : store_(std::move(store)), objects_(store_), rows_(std::move(rows)), options_(std::move(options)) {}
checkpoint_index::~checkpoint_index() = default;

result<std::unique_ptr<checkpoint_index>> checkpoint_index::open(const std::filesystem::path& store,
                                                                 const std::filesystem::path& index_folder,
                                                                 checkpoint_index_options options) {
  auto rows = open_rows(index_folder);
  if (!rows) return rows.failure();
  std::unique_ptr<checkpoint_index> index(new checkpoint_index(store, *std::move(rows), std::move(options)));
  auto repaired = index->repair();
  if (!repaired && repaired.failure().code == errc::corrupt) {
    log::error("the checkpoint index is rebuilt from the manifests: " + repaired.failure().message);
    repaired = index->rebuild_index();
  }
  if (!repaired) return repaired.failure();
  return index;
}

result<void> checkpoint_index::repair() {
  if (auto removed = objects_.remove_leftovers(leftover_age); !removed) return removed;
  if (auto finished = finish_deletions(); !finished) return finished;
  auto stored = list_checkpoints(objects_, "");
  if (!stored) return stored.failure();
  auto indexed = keys("");
  if (!indexed) return indexed.failure();
  std::sort(stored->begin(), stored->end());
  std::sort(indexed->begin(), indexed->end());
  for (const auto& key : *stored) {
    if (std::binary_search(indexed->begin(), indexed->end(), key)) continue;
    const auto m = read_manifest(objects_, key);
    if (!m) {
      log::error("not indexed: " + m.failure().message);
      continue;
    }
    log::warn("checkpoint " + to_string(key) + " was durable but not indexed; it is now");
    // Whoever put it may have died before the name was durable; from now on others are dropped for its sake.
    if (auto synced = sync_folder((store_ / manifest_object(key)).parent_path()); !synced) return synced;
    if (auto put = put_rows(*m); !put) return put;
  }
  std::vector<checkpoint_key> gone;
  std::set_difference(indexed->begin(), indexed->end(), stored->begin(), stored->end(),
                      std::back_inserter(gone));
  for (const auto& key : gone) log::error("the manifest of checkpoint " + to_string(key) + " has vanished");
  return remove_rows(gone);
}

result<void> checkpoint_index::commit(manifest m) {
  sort_chunks(m);
  if (auto valid = validate(m); !valid) return valid;
  const std::string text = encode(m);
  // What cannot be read must not be written: a text that is not UTF-8, for one.
  if (const auto again = decode_manifest(text); !again)
    return error{errc::invalid_argument, "the manifest could not be read back: " + again.failure().message};
  const checkpoint_key key = m.key();
  if (auto there = checkpoint_reader(store_, m).check_headers(); !there) return there;
  const auto condemned = objects_.exists(tombstone_object(key));
  if (!condemned) return condemned.failure();
  if (*condemned) return error{errc::refused, "checkpoint " + to_string(key) + " is being deleted"};

  if (auto put = objects_.put_if_absent(manifest_object(key), text); !put) {
    if (put.failure().code != errc::already_exists) return put;
    const auto present = objects_.get(manifest_object(key));
    if (!present) return present.failure();
    if (*present != text)
      return error{errc::already_exists,
                   "there is another checkpoint " + to_string(key) + ": " + put.failure().message};
  }
  options_.at_stage(index_stage::manifest_put);
  const auto known = rows_->get(manifests_family, manifest_key(key));
  if (!known) return known.failure();
  if (*known) return {};
  if (auto indexed = put_rows(m); !indexed) return indexed;
  ++commits_;
  options_.at_stage(index_stage::indexed);
  return {};
}

result<void> checkpoint_index::put_rows(const manifest& m) {
  if (auto ready = rows_->ready(); !ready) return ready;
  rocksdb::WriteBatch batch;
  batch.Put(rows_->family(manifests_family), manifest_key(m.key()), encode(m));
  reference_changes changes;
  changes.add(m);
  if (auto put = changes.put_into(batch, *rows_, false); !put) return put;
  return rows_->write(batch, true);
}

result<void> checkpoint_index::remove_rows(std::span<const checkpoint_key> keys) {
  if (auto ready = rows_->ready(); !ready) return ready;
  rocksdb::WriteBatch batch;
  reference_changes changes;
  for (const auto& key : keys) {
    const std::string row = manifest_key(key);
    const auto text = rows_->get(manifests_family, row);
    if (!text) return text.failure();
    if (!*text) continue;
    const auto m = decode_manifest(**text);
    if (!m) return m.failure();
    batch.Delete(rows_->family(manifests_family), row);
    changes.remove(*m);
  }
  if (batch.Count() == 0) return {};
  if (auto put = changes.put_into(batch, *rows_, false); !put) return put;
  return rows_->write(batch, true);
}

result<void> checkpoint_index::rebuild_index() {
  if (auto ready = rows_->ready(); !ready) return ready;
  const auto stored = list_checkpoints(objects_, "");
  if (!stored) return stored.failure();
  rocksdb::WriteBatch batch;
  const std::string beyond(80, '\xff');
  for (const std::size_t family : {manifests_family, chunks_family, packs_family})
    batch.DeleteRange(rows_->family(family), "", beyond);
  reference_changes changes;
  for (const auto& key : *stored) {
    const auto m = read_manifest(objects_, key);
    if (!m) {
      log::error("not indexed: " + m.failure().message);
      continue;
    }
    batch.Put(rows_->family(manifests_family), manifest_key(key), encode(*m));
    changes.add(*m);
  }
  if (auto put = changes.put_into(batch, *rows_, true); !put) return put;
  if (auto written = rows_->write(batch, true); !written) return written;
  return finish_deletions();
}

result<std::vector<checkpoint_key>> checkpoint_index::keys(const std::string& job) const {
  std::vector<checkpoint_key> found;
  const auto at = rows_->iterate(manifests_family);
  const std::string prefix = job.empty() ? "" : manifest_key_prefix(job);
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next())
    found.push_back(key_of_row(at->key().ToStringView()));
  if (!at->status().ok()) return rows_->failure("read from", at->status());
  std::sort(found.begin(), found.end(), [](const checkpoint_key& a, const checkpoint_key& b) {
    return a.job != b.job ? a.job < b.job : b < a;
  });
  return found;
}

result<manifest> checkpoint_index::get(const checkpoint_key& key) const {
  const auto text = rows_->get(manifests_family, manifest_key(key));
  if (!text) return text.failure();
  if (!*text) return error{errc::not_found, "there is no checkpoint " + to_string(key)};
  return decode_manifest(**text);
}

result<std::vector<checkpoint_summary>> checkpoint_index::list(const std::string& job) const {
  const auto found = keys(job);
  if (!found) return found.failure();
  std::vector<checkpoint_summary> summaries;
  for (const auto& key : *found) {
    const auto m = get(key);
    if (!m) return m.failure();
    summaries.push_back({key, m->total_bytes(), m->created_unix_ms, m->created_by, m->standing.outcome.loss});
  }
  return summaries;
}

bool checkpoint_index::is_in_order(const checkpoint_key& key) const {
  auto reader = checkpoint_reader::open(store_, key);
  const auto checked = reader ? reader->check_headers() : result<void>(reader.failure());
  if (!checked) log::error("checkpoint " + to_string(key) + " is passed over: " + checked.failure().message);
  return checked.has_value();
}

result<std::optional<manifest>> checkpoint_index::latest_valid(const std::string& job) const {
  const auto found = keys(job);
  if (!found) return found.failure();
  for (const auto& key : *found) {
    if (!is_in_order(key)) continue;
    auto m = get(key);
    if (!m) return m.failure();
    return std::optional(*std::move(m));
  }
  return std::optional<manifest>();
}

result<std::optional<chunk_record>> checkpoint_index::find_chunk(const content_hash& hash) const {
  const std::string prefix = chunk_key_prefix(hash);
  const auto at = rows_->iterate(chunks_family);
  at->Seek(prefix);
  if (!at->status().ok()) return rows_->failure("read from", at->status());
  if (!at->Valid() || !at->key().starts_with(prefix)) return std::optional<chunk_record>();
  auto row = decode_chunk_row(at->key().ToStringView(), at->value().ToStringView());
  if (!row) return row.failure();
  return std::optional(std::move(row->record));
}

result<verification> checkpoint_index::verify(const checkpoint_key& key) const {
  auto reader = checkpoint_reader::open(store_, key);
  if (!reader) return reader.failure();
  return verification{reader->contents().chunks.size(), reader->contents().total_bytes(), reader->verify()};
}

}  // namespace perdura::storage
