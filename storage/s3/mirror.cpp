#include "storage/s3/mirror.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/file.hpp"
#include "storage/object_folder.hpp"
#include "storage/pack_frame.hpp"

namespace perdura::storage {
namespace {

namespace fs = std::filesystem;

constexpr int push_rounds_max = 3;
constexpr const char* fetch_folder = ".writing/fetch";

std::string pack_object(const std::string& pack) { return "packs/" + pack; }

void extend(pack_extents& extents, const chunk_record& record) {
  auto& end = extents[record.pack];
  end = std::max(end, record.offset + record_header_bytes + record.stored_size + record_trailer_bytes);
}

// The file holds whole records up to there, each with the right checksum.
result<void> check_records(const fs::path& folder, const std::string& pack, std::uint64_t needed) {
  const auto opened = pack_reader::open(folder, pack);
  if (!opened) return opened.failure();
  const auto found = opened->scan([](auto&&...) {});
  if (found.valid_bytes >= needed) return {};
  return error{errc::corrupt,
               pack + " as it was fetched: " +
                   (found.why.empty() ? "it ends at offset " + std::to_string(found.valid_bytes) + ", " +
                                            std::to_string(needed) + " are needed"
                                      : found.why)};
}

}  // namespace

pack_extents extents_of(const manifest& m) {
  pack_extents extents;
  for (const auto& chunk : m.chunks) extend(extents, chunk.record);
  for (const auto& base : m.bases) extend(extents, base);
  return extents;
}

// ---- to the tier

result<push_report> mirror::push(const checkpoint_key& key) {
  push_report report;
  const auto m = read_manifest(object_folder(store_), key);
  if (!m) return m.failure();
  const auto condemned = tier_.size(tombstone_object(key));
  if (!condemned) return condemned.failure();
  if (*condemned)
    return error{errc::refused, "checkpoint " + to_string(key) + " is being removed from " + tier_.where()};
  if (auto there = checkpoint_reader(store_, *m).check_headers(); !there) return there.failure();
  const auto needed = extents_of(*m);
  // Packs first, and once more if a removal elsewhere took one that it did not know to be needed.
  for (int round = 0; round < push_rounds_max; ++round) {
    if (auto put = put_packs(needed, report); !put) return put.failure();
    options_.at_stage(mirror_stage::packs_put);
    if (auto put = put_manifest(*m); !put) return put.failure();
    options_.at_stage(mirror_stage::manifest_put);
    const auto whole = report.packs_sent == 0 && round == 0 ? result<bool>(true) : has_packs(needed);
    if (!whole) return whole.failure();
    if (*whole) return report;
  }
  return error{errc::unavailable, "packs of checkpoint " + to_string(key) + " vanish from " + tier_.where() +
                                      " as fast as they are put there: does another cluster use it?"};
}

result<void> mirror::put_packs(const pack_extents& needed, push_report& report) {
  for (const auto& [pack, end] : needed) {
    const auto there = tier_.size(pack_object(pack));
    if (!there) return there.failure();
    if (*there && **there >= end) continue;
    const fs::path source = packs_folder(store_) / pack;
    std::error_code failed;
    const auto bytes = fs::file_size(source, failed);
    if (failed) return error{errc::not_found, "cannot read " + source.string() + ": " + failed.message()};
    if (bytes < end)
      return error{errc::corrupt, source.string() + " has " + std::to_string(bytes) + " bytes; " +
                                      std::to_string(end) + " are needed"};
    // One that is there and shorter was put before its last records were appended.
    auto put = tier_.put_file(pack_object(pack), source, *there ? put_mode::replace : put_mode::if_absent);
    if (!put && put.failure().code == errc::already_exists) {
      const auto now = tier_.size(pack_object(pack));
      if (!now) return now.failure();
      if (*now && **now >= end) put = {};
    }
    if (!put) return put;
    ++report.packs_sent;
    report.bytes_sent += bytes;
    options_.at_stage(mirror_stage::pack_put);
  }
  return {};
}

result<void> mirror::put_manifest(const manifest& m) {
  const std::string name = manifest_object(m.key());
  const std::string text = encode(m);
  auto put = tier_.put_if_absent(name, text);
  if (put || put.failure().code != errc::already_exists) return put;
  const auto there = tier_.get(name);
  if (!there) return there.failure();
  if (*there == text) return {};
  return error{errc::already_exists, "there is another checkpoint " + to_string(m.key()) + " in " +
                                         tier_.where() + ": two clusters must not share a prefix"};
}

result<bool> mirror::has_packs(const pack_extents& needed) const {
  for (const auto& [pack, end] : needed) {
    const auto there = tier_.size(pack_object(pack));
    if (!there) return there.failure();
    if (!*there || **there < end) return false;
  }
  return true;
}

// ---- from the tier

result<manifest> mirror::manifest_of(const checkpoint_key& key) const {
  if (!is_job_name(key.job))
    return error{errc::invalid_argument, "'" + key.job.substr(0, 64) + "' names no job"};
  const auto text = tier_.get(manifest_object(key));
  if (!text)
    return error{text.failure().code, "no checkpoint " + to_string(key) + ": " + text.failure().message};
  auto m = decode_manifest(*text);
  const std::string what = manifest_object(key) + " in " + tier_.where();
  if (!m) return error{m.failure().code, what + ": " + m.failure().message};
  if (m->key() != key) return error{errc::corrupt, what + " is the manifest of " + to_string(m->key())};
  return m;
}

result<manifest> mirror::fetch(const checkpoint_key& key) {
  auto m = manifest_of(key);
  if (!m) return m.failure();
  const auto condemned = object_folder(store_).exists(tombstone_object(key));
  if (!condemned) return condemned.failure();
  if (*condemned) return error{errc::refused, "checkpoint " + to_string(key) + " is being removed here"};
  const auto needed = extents_of(*m);
  if (auto fetched = fetch_packs(needed, false); !fetched) return fetched.failure();
  auto flaws = checkpoint_reader(store_, *m).verify();
  if (!flaws.empty()) {
    log::warn("packs that were here are damaged and are fetched again: " + flaws.front());
    if (auto fetched = fetch_packs(needed, true); !fetched) return fetched.failure();
    flaws = checkpoint_reader(store_, *m).verify();
  }
  if (!flaws.empty())
    return error{errc::corrupt, "checkpoint " + to_string(key) + " is damaged in " + tier_.where() +
                                    " too: " + flaws.front() + " (" + std::to_string(flaws.size()) +
                                    " in all)"};
  options_.at_stage(mirror_stage::packs_verified);
  if (auto kept = keep_manifest(*m); !kept) return kept.failure();
  options_.at_stage(mirror_stage::manifest_fetched);
  std::error_code ignored;
  fs::remove_all(store_ / fetch_folder, ignored);
  return m;
}

result<void> mirror::fetch_packs(const pack_extents& needed, bool even_if_there) {
  for (const auto& [pack, end] : needed) {
    std::error_code missing;
    const auto here = fs::file_size(packs_folder(store_) / pack, missing);
    if (!even_if_there && !missing && here >= end) continue;
    if (auto fetched = fetch_pack(pack, end); !fetched) return fetched;
    options_.at_stage(mirror_stage::pack_fetched);
  }
  return {};
}

result<void> mirror::fetch_pack(const std::string& name, std::uint64_t needed) {
  const fs::path folder = store_ / fetch_folder;
  const fs::path temporary = folder / name;
  if (auto made = make_folders(folder); !made) return made;
  if (auto made = make_folders(packs_folder(store_)); !made) return made;
  const bool is_resumed = fs::exists(temporary);
  auto fetched = download(name, temporary);
  if (fetched) fetched = check_records(folder, name, needed);
  if (!fetched && is_resumed && fetched.failure().code == errc::corrupt) {
    // What an earlier attempt left may not have reached the disk.
    ::unlink(temporary.c_str());
    fetched = download(name, temporary);
    if (fetched) fetched = check_records(folder, name, needed);
  }
  if (!fetched) {
    if (fetched.failure().code == errc::corrupt) ::unlink(temporary.c_str());
    return error{fetched.failure().code, "from " + tier_.where() + ": " + fetched.failure().message};
  }
  const fs::path target = packs_folder(store_) / name;
  if (::rename(temporary.c_str(), target.c_str()) != 0) return io_error("put into place", target);
  return sync_folder(packs_folder(store_));
}

// Goes on behind what an earlier attempt has written.
result<void> mirror::download(const std::string& name, const fs::path& to) {
  const auto size = tier_.size(pack_object(name));
  if (!size) return size.failure();
  if (!*size) return error{errc::corrupt, pack_object(name) + " is missing, though a manifest needs it"};
  auto file = open_file(to, O_WRONLY | O_CREAT | O_APPEND);
  if (!file) return file.failure();
  auto written = size_of(*file, to);
  if (!written) return written.failure();
  std::uint64_t at = *written;
  if (at > **size) {
    if (::ftruncate(file->get(), 0) != 0) return io_error("empty", to);
    at = 0;
  }
  std::vector<std::byte> piece;
  while (at < **size) {
    piece.resize(std::min(options_.piece_bytes, **size - at));
    if (auto read = tier_.get_range(pack_object(name), at, piece); !read) return read;
    const std::array<std::span<const std::byte>, 1> parts{piece};
    if (auto appended = write_all(*file, parts, to); !appended) return appended;
    at += piece.size();
    options_.at_stage(mirror_stage::piece_fetched);
  }
  if (::fsync(file->get()) != 0) return io_error("make durable", to);
  return {};
}

result<void> mirror::keep_manifest(const manifest& m) {
  const object_folder objects(store_);
  const std::string name = manifest_object(m.key());
  const std::string text = encode(m);
  auto put = objects.put_if_absent(name, text);
  if (put || put.failure().code != errc::already_exists) return put;
  const auto here = objects.get(name);
  if (here && *here == text) return {};
  if (read_manifest(objects, m.key()))
    return error{errc::already_exists,
                 "there is another checkpoint " + to_string(m.key()) + " here than in " + tier_.where()};
  log::warn("the manifest of checkpoint " + to_string(m.key()) + " is damaged here and is replaced");
  if (auto removed = objects.remove(name); !removed) return removed;
  return objects.put_if_absent(name, text);
}

result<std::vector<checkpoint_key>> mirror::list(const std::string& job) const {
  if (!job.empty() && !is_job_name(job))
    return error{errc::invalid_argument, "'" + job.substr(0, 64) + "' names no job"};
  const auto manifests = tier_.list(job.empty() ? "manifests" : "manifests/" + job);
  if (!manifests) return manifests.failure();
  const auto tombstones = tier_.list("tombstones");
  if (!tombstones) return tombstones.failure();
  std::vector<checkpoint_key> condemned, keys;
  for (const auto& entry : *tombstones)
    if (auto key = parse_checkpoint_object(entry.name)) condemned.push_back(*std::move(key));
  for (const auto& entry : *manifests) {
    auto key = parse_checkpoint_object(entry.name);
    if (key && std::find(condemned.begin(), condemned.end(), *key) == condemned.end())
      keys.push_back(*std::move(key));
  }
  std::sort(keys.begin(), keys.end(), [](const checkpoint_key& a, const checkpoint_key& b) {
    return a.job != b.job ? a.job < b.job : b < a;
  });
  return keys;
}

// ---- out of the tier

result<removal_report> mirror::remove(const checkpoint_key& key) {
  if (!is_job_name(key.job))
    return error{errc::invalid_argument, "'" + key.job.substr(0, 64) + "' names no job"};
  return remove_all({key});
}

result<removal_report> mirror::keep_newest(const std::string& job, std::size_t keep) {
  if (keep == 0) return error{errc::invalid_argument, "keep is 0; at least 1 checkpoint is kept"};
  const auto found = list(job);
  if (!found) return found.failure();
  if (job.empty() || found->size() <= keep) return removal_report{};
  return remove_all({found->begin() + static_cast<std::ptrdiff_t>(keep), found->end()});
}

result<removal_report> mirror::remove_all(const std::vector<checkpoint_key>& keys) {
  removal_report report;
  report.removed = keys;
  for (const auto& key : keys)
    if (auto put = tier_.put_if_absent(tombstone_object(key), ""); !put)
      if (put.failure().code != errc::already_exists) return put.failure();
  options_.at_stage(mirror_stage::tombstones_put);
  if (auto finished = finish_removals(); !finished) return finished.failure();
  if (auto swept = sweep(report); !swept) return swept.failure();
  return report;
}

result<void> mirror::finish_removals() {
  const auto tombstones = tier_.list("tombstones");
  if (!tombstones) return tombstones.failure();
  std::vector<checkpoint_key> condemned;
  for (const auto& entry : *tombstones)
    if (auto key = parse_checkpoint_object(entry.name)) condemned.push_back(*std::move(key));
  for (const auto& key : condemned) {
    if (auto removed = tier_.remove(manifest_object(key)); !removed) return removed;
    known_.erase(key);
  }
  options_.at_stage(mirror_stage::manifests_removed);
  for (const auto& key : condemned)
    if (auto removed = tier_.remove(tombstone_object(key)); !removed) return removed;
  options_.at_stage(mirror_stage::tombstones_removed);
  return {};
}

// While a manifest cannot be read, nobody knows what it needs: an error, and no pack goes.
result<std::map<checkpoint_key, pack_extents>> mirror::all_extents() {
  const auto keys = list("");
  if (!keys) return keys.failure();
  std::map<checkpoint_key, pack_extents> all;
  for (const auto& key : *keys) {
    auto known = known_.find(key);
    if (known == known_.end()) {
      const auto m = manifest_of(key);
      if (!m) return error{m.failure().code, "no packs are removed: " + m.failure().message};
      known = known_.emplace(key, extents_of(*m)).first;
    }
    all.insert(*known);
  }
  return all;
}

result<void> mirror::sweep(removal_report& report) {
  const auto kept = all_extents();
  if (!kept) return kept.failure();
  const auto packs = tier_.list("packs");
  if (!packs) return packs.failure();
  for (const auto& entry : *packs) {
    const std::string pack = entry.name.substr(entry.name.find('/') + 1);
    if (!parse_pack_name(pack) || entry.size < pack_header_bytes) continue;
    const bool is_needed =
        std::any_of(kept->begin(), kept->end(), [&](const auto& m) { return m.second.contains(pack); });
    if (is_needed) continue;
    const auto garbage = is_garbage(pack, *kept, report.removed);
    if (!garbage) return garbage.failure();
    if (!*garbage) continue;
    if (auto removed = tier_.remove(entry.name); !removed) return removed;
    report.packs_removed.push_back(pack);
    report.bytes_freed += entry.size;
    options_.at_stage(mirror_stage::pack_removed);
  }
  return {};
}

// A pack that nothing needs may be on its way to a manifest, unless it was written for one that was removed,
// or for a snapshot older than all that are kept of its job, or than the removed ones where none is kept.
result<bool> mirror::is_garbage(const std::string& pack, const std::map<checkpoint_key, pack_extents>& kept,
                                const std::vector<checkpoint_key>& removed) const {
  header_bytes bytes;
  if (auto read = tier_.get_range(pack_object(pack), 0, bytes); !read) return read.failure();
  const auto header = decode_pack_header(bytes);
  if (!header || to_string(header->name) != pack) {
    log::warn(pack_object(pack) + " in " + tier_.where() + " is damaged and left alone");
    return false;
  }
  const auto& purpose = header->purpose;
  const auto is_of_job = [&](const checkpoint_key& key) { return hash_of_job(key.job) == purpose.job; };
  if (std::any_of(removed.begin(), removed.end(),
                  [&](const checkpoint_key& key) { return purpose_of(key) == purpose; }))
    return true;
  bool is_any_kept = false;
  for (const auto& [key, extents] : kept) {
    if (!is_of_job(key)) continue;
    is_any_kept = true;
    if (std::tie(purpose.timeline, purpose.step) >= std::tie(key.timeline, key.step)) return false;
  }
  if (is_any_kept) return true;
  return std::any_of(removed.begin(), removed.end(), [&](const checkpoint_key& key) {
    return is_of_job(key) && std::tie(purpose.timeline, purpose.step) <= std::tie(key.timeline, key.step);
  });
}

}  // namespace perdura::storage
