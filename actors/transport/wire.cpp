#include "actors/transport/wire.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace perdura::transport {
namespace {

constexpr std::uint64_t magic = 0x4b4e494c44524550ULL;  // "PERDLINK"

template <class T>
void put(std::byte*& at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) *at++ = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(const std::byte*& at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(*at++) << (8 * i);
  return value;
}

void put(std::byte*& at, const incarnation& who) {
  put(at, who.high);
  put(at, who.low);
}

void get(const std::byte*& at, incarnation& who) {
  who.high = get<std::uint64_t>(at);
  who.low = get<std::uint64_t>(at);
}

template <std::size_t N>
void put(std::byte*& at, const std::array<std::byte, N>& bytes) {
  std::memcpy(at, bytes.data(), N);
  at += N;
}

template <std::size_t N>
void get(const std::byte*& at, std::array<std::byte, N>& bytes) {
  std::memcpy(bytes.data(), at, N);
  at += N;
}

}  // namespace

encoded_greeting encode(const greeting& g) {
  encoded_greeting bytes;
  std::byte* at = bytes.data();
  put(at, magic);
  put(at, g.transport);
  put(at, g.protocol);
  put(at, static_cast<std::uint32_t>(g.kind));
  put(at, static_cast<std::uint32_t>(g.reason));
  put(at, g.from);
  put(at, g.to);
  put(at, g.fresh);
  put(at, g.proof);
  PERDURA_CHECK(at == bytes.data() + bytes.size(), "a greeting's fields fill it");
  return bytes;
}

result<greeting> decode_greeting(const encoded_greeting& bytes) {
  const std::byte* at = bytes.data();
  if (get<std::uint64_t>(at) != magic)
    return error{errc::corrupt, "this is no Perdura link: the magic is missing"};
  greeting g;
  g.transport = get<std::uint32_t>(at);
  g.protocol = get<std::uint32_t>(at);
  if (g.transport != transport_version) return g;
  const auto kind = get<std::uint32_t>(at);
  const auto reason = get<std::uint32_t>(at);
  if (kind < static_cast<std::uint32_t>(greeting_kind::hello) ||
      kind > static_cast<std::uint32_t>(greeting_kind::refusal) ||
      reason > static_cast<std::uint32_t>(refusal_reason::wrong_role))
    return error{errc::corrupt, "a greeting of a kind that does not exist"};
  g.kind = static_cast<greeting_kind>(kind);
  g.reason = static_cast<refusal_reason>(reason);
  get(at, g.from);
  get(at, g.to);
  get(at, g.fresh);
  get(at, g.proof);
  return g;
}

encoded_piece_header encode(const piece_header& h) {
  encoded_piece_header bytes;
  std::byte* at = bytes.data();
  put(at, h.head_bytes);
  put(at, h.body_bytes);
  put(at, h.index);
  put(at, h.header_check);
  put(at, h.checksum);
  return bytes;
}

piece_header decode_piece_header(std::span<const std::byte, piece_header_bytes> bytes) {
  const std::byte* at = bytes.data();
  piece_header h;
  h.head_bytes = get<std::uint32_t>(at);
  h.body_bytes = get<std::uint32_t>(at);
  h.index = get<std::uint32_t>(at);
  h.header_check = get<std::uint32_t>(at);
  h.checksum = get<std::uint64_t>(at);
  return h;
}

std::uint32_t header_check(std::uint64_t chain, const piece_header& h) {
  std::array<std::byte, 12> bytes;
  std::byte* at = bytes.data();
  put(at, h.head_bytes);
  put(at, h.body_bytes);
  put(at, h.index);
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(bytes.data(), bytes.size(), chain));
}

std::uint64_t piece_checksum(std::uint64_t chain, std::span<const std::byte> head_part,
                             std::span<const std::byte> body_part) {
  if (!head_part.empty()) chain = XXH3_64bits_withSeed(head_part.data(), head_part.size(), chain);
  if (!body_part.empty()) chain = XXH3_64bits_withSeed(body_part.data(), body_part.size(), chain);
  return chain;
}

}  // namespace perdura::transport
