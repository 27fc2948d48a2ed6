// The bytes of a pack's headers; see pack.hpp for the format.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "actors/base/result.hpp"
#include "storage/pack.hpp"

namespace perdura::storage {

struct record_header {
  chunk_kind kind{};
  chunk_codec codec = chunk_codec::raw;
  std::uint64_t stored_size{};
  std::uint64_t decoded_size{};
  content_hash hash;
};

using header_bytes = std::array<std::byte, 64>;
static_assert(pack_header_bytes == sizeof(header_bytes) && record_header_bytes == sizeof(header_bytes));

header_bytes encode_pack_header(const pack_header& header);
// Errors name what does not fit, without the file.
result<pack_header> decode_pack_header(const header_bytes& bytes);

header_bytes encode_record_header(const record_header& header);
result<record_header> decode_record_header(const header_bytes& bytes);

std::array<std::byte, 4> encode_checksum(std::uint32_t crc);
std::uint32_t decode_checksum(const std::array<std::byte, 4>& bytes);

}  // namespace perdura::storage
