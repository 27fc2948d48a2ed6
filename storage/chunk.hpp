// A chunk: the bytes of one array of one tile, and where they lie.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "actors/base/ids.hpp"
#include "storage/hash.hpp"

namespace perdura::storage {

// The arrays of a tile, in the order in which a trainer copies them. Numbers are part of the formats.
enum class chunk_kind : std::uint8_t { parameters = 1, first_moment = 2, second_moment = 3, ema = 4 };
inline constexpr std::array all_kinds{chunk_kind::parameters, chunk_kind::first_moment,
                                      chunk_kind::second_moment, chunk_kind::ema};

// How the stored bytes become the decoded ones (codec.hpp). Numbers are part of the formats.
enum class chunk_codec : std::uint8_t { raw = 1, planes = 2, delta = 3 };
inline constexpr std::array all_codecs{chunk_codec::raw, chunk_codec::planes, chunk_codec::delta};

// No single chunk is larger: what is read is checked against this before anything is allocated.
inline constexpr std::uint64_t chunk_bytes_max = std::uint64_t{1} << 30;
// Of deltas, each the base of the next: what reading one chunk may cost is bounded. Writers keep to less.
inline constexpr std::size_t chain_length_max = 64;

struct chunk_record {
  content_hash hash;       // of the decoded bytes
  std::string pack;        // file name within the store's folder of packs
  std::uint64_t offset{};  // of the frame, header included
  std::uint64_t stored_size{};
  std::uint64_t decoded_size{};
  chunk_codec codec = chunk_codec::raw;
  std::optional<content_hash> base{};  // of a delta, and of nothing else
  auto operator<=>(const chunk_record&) const = default;
};

struct tile_chunk {
  tile_id tile;
  chunk_kind kind{};
  chunk_record record;
  auto operator<=>(const tile_chunk&) const = default;
};

const char* to_string(chunk_kind kind);
const char* to_string(chunk_codec codec);
std::optional<chunk_kind> parse_kind(std::string_view text);
std::optional<chunk_kind> parse_kind(std::uint8_t number);
std::optional<chunk_codec> parse_codec(std::string_view text);
std::optional<chunk_codec> parse_codec(std::uint8_t number);

}  // namespace perdura::storage
