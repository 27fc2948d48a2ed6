#include "storage/checkpoint_writer.hpp"

namespace perdura::storage {

checkpoint_writer::checkpoint_writer(const std::filesystem::path& store, incarnation who,
                                     pack_options options)
    : packs_(packs_folder(store), who, options) {}

void checkpoint_writer::begin(const checkpoint_key& snapshot) {
  packs_.begin(purpose_of(snapshot));
  is_open_ = true;
  failure_.clear();
}

result<tile_chunk> checkpoint_writer::append(tile_id tile, chunk_kind kind,
                                             std::span<const std::byte> bytes) {
  PERDURA_CHECK(is_open_, "begin() comes before append()");
  if (!failure_.empty()) return error{errc::io, failure_};
  auto record = packs_.append(kind, bytes);
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

chunk_report to_report(const tile_chunk& chunk, incarnation who, timeline_number timeline, era at,
                       step_number step) {
  chunk_report r;
  r.who = who;
  r.timeline = timeline;
  r.at = at;
  r.step = step;
  r.tile = chunk.tile;
  r.kind = static_cast<std::uint8_t>(chunk.kind);
  r.hash = chunk.record.hash.bytes;
  r.pack = chunk.record.pack;
  r.offset = chunk.record.offset;
  r.size = chunk.record.stored_size;
  return r;
}

result<tile_chunk> from_report(const chunk_report& report) {
  const auto refused = [&](const std::string& why) {
    return error{errc::invalid_argument,
                 "the chunk report of worker " + short_name(report.who) + " is refused: " + why};
  };
  const auto kind = parse_kind(report.kind);
  if (!kind) return refused("there is no chunk kind " + std::to_string(report.kind));
  const auto pack = parse_pack_name(report.pack);
  if (!pack || pack->who != report.who)
    return refused("'" + report.pack.substr(0, 64) + "' is not a pack of its own");
  if (report.size > chunk_bytes_max)
    return refused("a chunk has at most " + std::to_string(chunk_bytes_max) + " bytes");
  return tile_chunk{report.tile,
                    *kind,
                    {{report.hash}, report.pack, report.offset, report.size, report.size, chunk_codec::raw}};
}

}  // namespace perdura::storage
