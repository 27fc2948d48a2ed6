#include "storage/checkpoint_writer.hpp"

#include <algorithm>

#include "actors/base/check.hpp"
#include "actors/base/log.hpp"

namespace perdura::storage {

checkpoint_writer::checkpoint_writer(const std::filesystem::path& store, incarnation who,
                                     writer_options options)
    : options_(options),
      store_(store),
      objects_(store),
      packs_(packs_folder(store), who, options.packs),
      codecs_(options.may_compress) {
  PERDURA_CHECK(options.chain_max <= chain_length_max, "chains are no longer than readers allow");
}

void checkpoint_writer::begin(const checkpoint_key& snapshot, const std::optional<checkpoint_key>& origin) {
  packs_.begin(purpose_of(snapshot));
  is_open_ = true;
  failure_.clear();
  own_.clear();
  bytes_written_ = 0;
  find_previous(snapshot, origin);
}

// ---- what there is already

void checkpoint_writer::find_previous(const checkpoint_key& snapshot,
                                      const std::optional<checkpoint_key>& origin) {
  const auto listed = list_checkpoints(objects_, snapshot.job);
  if (!listed)
    log::warn("checkpoint " + to_string(snapshot) + " is written whole: " + listed.failure().message);
  if (listed)
    for (const auto& key : *listed)
      if (key != snapshot && open_previous(key)) return;
  if (origin && open_previous(*origin)) return;
  previous_chunks_.clear();
  previous_.reset();
}

bool checkpoint_writer::open_previous(const checkpoint_key& key) {
  // A manifest never changes, but its packs may have been found damaged since: they are opened anew.
  auto opened = previous_ && previous_->contents().key() == key
                    ? result<checkpoint_reader>(checkpoint_reader(store_, previous_->contents()))
                    : checkpoint_reader::open(store_, key);
  if (!opened) {
    log::warn("nothing is taken over from an older checkpoint: " + opened.failure().message);
    return false;
  }
  previous_chunks_.clear();
  previous_.emplace(std::move(*opened));
  for (const auto& c : previous_->contents().chunks) previous_chunks_.emplace(c.record.hash, &c.record);
  return true;
}

const chunk_record* checkpoint_writer::if_there(const chunk_record* record) {
  if (record == nullptr) return nullptr;
  const auto there = previous_->check_headers(*record);
  if (there) return record;
  log::warn("a chunk is written again: " + there.failure().message);
  return nullptr;
}

const chunk_record* checkpoint_writer::before(tile_id tile, chunk_kind kind, std::size_t bytes) {
  if (!previous_) return nullptr;
  const tile_chunk* found = previous_->contents().find(tile, kind);
  return found == nullptr || found->record.decoded_size != bytes ? nullptr : if_there(&found->record);
}

std::optional<chunk_base> checkpoint_writer::base_for(tile_id tile, const chunk_record& record,
                                                      std::vector<std::byte>& room) {
  if (!options_.may_compress || previous_->contents().chain_of(record).size() + 1 > options_.chain_max)
    return std::nullopt;
  if (const auto kept = kept_.find(tile); kept != kept_.end()) {
    const auto& arrays = kept->second.arrays;
    const std::size_t size = kept->second.state.size() / arrays.size();
    for (std::size_t i = 0; i < arrays.size(); ++i)
      if (arrays[i].second == record.hash && size == record.decoded_size)
        return chunk_base{record.hash, kept->second.state.bytes().subspan(i * size, size)};
  }
  room.resize(record.decoded_size);
  if (const auto loaded = previous_->load(record, room); !loaded) {
    log::warn("nothing can be told as a difference to a damaged chunk: " + loaded.failure().message);
    return std::nullopt;
  }
  return chunk_base{record.hash, room};
}

std::vector<chunk_record> checkpoint_writer::bases_of(const chunk_record& chunk) const {
  std::vector<chunk_record> bases;
  if (!chunk.base || !previous_) return bases;
  const manifest& m = previous_->contents();
  const auto known = previous_chunks_.find(*chunk.base);
  const chunk_record* nearest = known != previous_chunks_.end() ? known->second : m.find_base(*chunk.base);
  if (nearest == nullptr) return bases;
  bases.push_back(*nearest);
  for (const auto* base : m.chain_of(*nearest)) bases.push_back(*base);
  return bases;
}

// ---- writing

result<chunk_record> checkpoint_writer::store(tile_id tile, chunk_kind kind, std::span<const std::byte> bytes,
                                              std::uint32_t element_bytes) {
  const auto hash = hash_of(bytes);
  if (const auto own = own_.find(hash); own != own_.end() && own->second.decoded_size == bytes.size())
    return own->second;
  if (const auto same = previous_chunks_.find(hash); same != previous_chunks_.end())
    if (const auto* there = if_there(same->second)) return *there;
  const chunk_record* known = before(tile, kind, bytes.size());
  std::vector<std::byte> room;
  std::optional<chunk_base> base;
  if (known != nullptr) base = base_for(tile, *known, room);
  const auto encoded = codecs_.encode(kind, bytes, element_bytes, base);
  auto record =
      packs_.append(kind, encoded.codec, encoded.codec == chunk_codec::raw ? bytes : std::span(encoded.bytes),
                    hash, bytes.size());
  if (!record) return record;
  bytes_written_ += record->stored_size;
  own_.emplace(hash, *record);
  return record;
}

result<tile_chunk> checkpoint_writer::append(tile_id tile, chunk_kind kind, std::span<const std::byte> bytes,
                                             std::uint32_t element_bytes) {
  PERDURA_CHECK(is_open_, "begin() comes before append()");
  if (!failure_.empty()) return error{errc::io, failure_};
  auto record = store(tile, kind, bytes, element_bytes);
  if (record) return tile_chunk{tile, kind, *std::move(record)};
  failure_ = "cannot write tile " + to_string(tile) + " " + to_string(kind) + ": " + record.failure().message;
  return error{record.failure().code, failure_};
}

result<std::vector<tile_chunk>> checkpoint_writer::append_tile(tile_id tile, std::span<const std::byte> state,
                                                               std::span<const chunk_kind> kinds) {
  PERDURA_CHECK(!kinds.empty() && state.size() % kinds.size() == 0, "the arrays of a tile are equally long");
  const std::size_t array_bytes = state.size() / kinds.size();
  std::vector<tile_chunk> chunks;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    auto chunk = append(tile, kinds[i], state.subspan(i * array_bytes, array_bytes));
    if (!chunk) return chunk.failure();
    chunks.push_back(*std::move(chunk));
  }
  return chunks;
}

result<std::vector<tile_chunk>> checkpoint_writer::append_tile(tile_id tile, const blob& state,
                                                               std::span<const chunk_kind> kinds) {
  auto chunks = append_tile(tile, state.bytes(), kinds);
  if (chunks) keep(tile, state, *chunks);
  return chunks;
}

void checkpoint_writer::keep(tile_id tile, const blob& state, const std::vector<tile_chunk>& chunks) {
  if (const auto old = kept_.find(tile); old != kept_.end()) {
    kept_bytes_ -= old->second.state.size();
    kept_.erase(old);
  }
  if (!options_.may_compress || options_.chain_max == 0 || state.empty() ||
      kept_bytes_ + state.size() > options_.base_bytes_max)
    return;
  auto& kept = kept_[tile];
  kept.state = state;
  for (const auto& c : chunks) kept.arrays.emplace_back(c.kind, c.record.hash);
  kept_bytes_ += state.size();
}

result<void> checkpoint_writer::finish() {
  PERDURA_CHECK(is_open_, "begin() comes before finish()");
  if (!failure_.empty()) return error{errc::io, failure_};
  if (auto synced = packs_.sync(); !synced) {
    failure_ = synced.failure().message;
    return synced;
  }
  is_open_ = false;
  return {};
}

// ---- reports

namespace {

stored_chunk to_stored(const chunk_record& r) {
  return {r.hash.bytes, r.pack, r.offset, r.stored_size, r.decoded_size, static_cast<std::uint8_t>(r.codec)};
}

}  // namespace

chunk_report to_report(const tile_chunk& chunk, std::span<const chunk_record> bases, incarnation who,
                       timeline_number timeline, era at, step_number step) {
  chunk_report r;
  r.who = who;
  r.timeline = timeline;
  r.at = at;
  r.step = step;
  r.tile = chunk.tile;
  r.kind = static_cast<std::uint8_t>(chunk.kind);
  r.chunk = to_stored(chunk.record);
  for (const auto& base : bases) r.bases.push_back(to_stored(base));
  return r;
}

result<reported_chunk> from_report(const chunk_report& report) {
  const auto refused = [&](const std::string& why) {
    return error{errc::invalid_argument,
                 "the chunk report of worker " + short_name(report.who) + " is refused: " + why};
  };
  const auto kind = parse_kind(report.kind);
  if (!kind) return refused("there is no chunk kind " + std::to_string(report.kind));
  if (report.bases.size() > chain_length_max)
    return refused("more than " + std::to_string(chain_length_max) + " deltas build on each other");
  std::vector<chunk_record> records;
  const auto read = [&](const stored_chunk& s) -> result<void> {
    const auto codec = parse_codec(s.codec);
    if (!codec) return refused("there is no codec " + std::to_string(s.codec));
    if (!parse_pack_name(s.pack)) return refused("'" + s.pack.substr(0, 64) + "' is not the name of a pack");
    if (s.stored_size > chunk_bytes_max || s.decoded_size > chunk_bytes_max)
      return refused("a chunk has at most " + std::to_string(chunk_bytes_max) + " bytes");
    records.push_back({{s.hash}, s.pack, s.offset, s.stored_size, s.decoded_size, *codec, std::nullopt});
    return {};
  };
  if (auto done = read(report.chunk); !done) return done.failure();
  for (const auto& base : report.bases)
    if (auto done = read(base); !done) return done.failure();
  for (std::size_t i = 0; i < records.size(); ++i) {
    const bool is_last = i + 1 == records.size();
    if ((records[i].codec == chunk_codec::delta) == is_last)
      return refused("a delta has to name what it builds on, and nothing else may");
    if (!is_last) records[i].base = records[i + 1].hash;
  }
  reported_chunk out{{report.tile, *kind, std::move(records.front())}, {}};
  out.bases.assign(std::make_move_iterator(records.begin() + 1), std::make_move_iterator(records.end()));
  return out;
}

}  // namespace perdura::storage
