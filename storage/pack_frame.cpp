#include "storage/pack_frame.hpp"

#include <cstring>
#include <span>

#include "storage/crc32c.hpp"

namespace perdura::storage {
namespace {

constexpr std::uint64_t file_magic = 0x4b43415041524450;  // "PDRAPACK"
constexpr std::uint32_t record_magic = 0x4b4e4843;        // "CHNK"
constexpr std::size_t crc_at = 60;

template <class Number>
void put(std::span<std::byte> out, std::size_t at, Number n) {
  for (std::size_t i = 0; i < sizeof n; ++i) out[at + i] = static_cast<std::byte>(n >> (8 * i));
}

template <class Number>
Number get(std::span<const std::byte> in, std::size_t at) {
  Number n = 0;
  for (std::size_t i = 0; i < sizeof n; ++i)
    n = static_cast<Number>(n | static_cast<Number>(std::to_integer<Number>(in[at + i]) << (8 * i)));
  return n;
}

void seal(header_bytes& bytes) { put(bytes, crc_at, crc32c(std::span(bytes).first(crc_at))); }
bool is_sealed(const header_bytes& bytes) {
  return get<std::uint32_t>(bytes, crc_at) == crc32c(std::span(bytes).first(crc_at));
}

}  // namespace

header_bytes encode_pack_header(const pack_header& header) {
  header_bytes bytes{};
  put(bytes, 0, file_magic);
  put(bytes, 8, pack_format_version);
  put(bytes, 12, pack_header_bytes);
  put(bytes, 16, header.name.who.high);
  put(bytes, 24, header.name.who.low);
  put(bytes, 32, header.name.sequence);
  put(bytes, 36, header.purpose.timeline.value);
  put(bytes, 40, header.purpose.step.value);
  put(bytes, 48, header.purpose.job);
  seal(bytes);
  return bytes;
}

result<pack_header> decode_pack_header(const header_bytes& bytes) {
  if (get<std::uint64_t>(bytes, 0) != file_magic)
    return error{errc::corrupt, "it does not begin as a pack does"};
  const auto version = get<std::uint32_t>(bytes, 8);
  if (!is_sealed(bytes)) return error{errc::corrupt, "the checksum of the file's header does not fit"};
  if (version != pack_format_version)
    return error{errc::version_mismatch, "it has format version " + std::to_string(version) +
                                             ", this build reads version " +
                                             std::to_string(pack_format_version)};
  if (get<std::uint32_t>(bytes, 12) != pack_header_bytes || get<std::uint32_t>(bytes, 56) != 0)
    return error{errc::corrupt, "the file's header has fields that this version does not have"};
  return pack_header{
      {{get<std::uint64_t>(bytes, 16), get<std::uint64_t>(bytes, 24)}, get<std::uint32_t>(bytes, 32)},
      {get<std::uint64_t>(bytes, 48), timeline_number(get<std::uint32_t>(bytes, 36)),
       step_number(get<std::uint64_t>(bytes, 40))}};
}

header_bytes encode_record_header(const record_header& header) {
  header_bytes bytes{};
  put(bytes, 0, record_magic);
  put(bytes, 4, static_cast<std::uint16_t>(record_header_bytes));
  put(bytes, 6, static_cast<std::uint8_t>(header.kind));
  put(bytes, 7, static_cast<std::uint8_t>(header.codec));
  put(bytes, 8, header.stored_size);
  put(bytes, 16, header.decoded_size);
  std::memcpy(bytes.data() + 24, header.hash.bytes.data(), header.hash.bytes.size());
  seal(bytes);
  return bytes;
}

result<record_header> decode_record_header(const header_bytes& bytes) {
  if (get<std::uint32_t>(bytes, 0) != record_magic) return error{errc::corrupt, "no record begins here"};
  if (!is_sealed(bytes)) return error{errc::corrupt, "the checksum of the record's header does not fit"};
  if (get<std::uint16_t>(bytes, 4) != record_header_bytes || get<std::uint32_t>(bytes, 56) != 0)
    return error{errc::corrupt, "the record's header has fields that this version does not have"};
  const auto kind = parse_kind(get<std::uint8_t>(bytes, 6));
  const auto codec = parse_codec(get<std::uint8_t>(bytes, 7));
  if (!kind || !codec) return error{errc::corrupt, "the record has an unknown kind or codec"};
  record_header header{*kind, *codec, get<std::uint64_t>(bytes, 8), get<std::uint64_t>(bytes, 16), {}};
  std::memcpy(header.hash.bytes.data(), bytes.data() + 24, header.hash.bytes.size());
  if (header.stored_size > chunk_bytes_max || header.decoded_size > chunk_bytes_max)
    return error{errc::corrupt, "the record claims more than " + std::to_string(chunk_bytes_max) + " bytes"};
  if (header.codec == chunk_codec::raw && header.stored_size != header.decoded_size)
    return error{errc::corrupt, "the record is raw, but its two sizes differ"};
  return header;
}

std::array<std::byte, 4> encode_checksum(std::uint32_t crc) {
  std::array<std::byte, 4> bytes{};
  put(bytes, 0, crc);
  return bytes;
}

std::uint32_t decode_checksum(const std::array<std::byte, 4>& bytes) { return get<std::uint32_t>(bytes, 0); }

}  // namespace perdura::storage
