// The bytes of a link: greetings of a fixed size to shake hands, then messages, cut into pieces that are
// hashed, sent and verified one by one. Numbers are little-endian.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"
#include "actors/transport/link.hpp"

namespace perdura::transport {

inline constexpr std::uint32_t transport_version = 1;

// ---- handshake
// ---------------------------------------------------------------------------------------------

enum class greeting_kind : std::uint32_t { hello = 1, challenge, proof, welcome, refusal };
enum class refusal_reason : std::uint32_t { none, version, wrong_incarnation, wrong_cookie, wrong_role };

using nonce = std::array<std::byte, 16>;
using digest = std::array<std::byte, 32>;

struct greeting {
  std::uint32_t transport = transport_version;
  std::uint32_t protocol = protocol_version;
  greeting_kind kind = greeting_kind::hello;
  refusal_reason reason = refusal_reason::none;
  incarnation from;
  incarnation to;
  nonce fresh{};
  digest proof{};
};

// The size, and the place of the magic and of the two versions, are the same in all versions to come.
inline constexpr std::size_t greeting_bytes = 104;
using encoded_greeting = std::array<std::byte, greeting_bytes>;

encoded_greeting encode(const greeting& g);
// Corrupt: not our magic, or a kind that does not exist. Of another transport version only the versions are
// read.
result<greeting> decode_greeting(const encoded_greeting& bytes);

// ---- messages
// ----------------------------------------------------------------------------------------------

// Precedes each piece. A message's content is head then body; piece i is content [i, i + 1) *
// piece_bytes_max.
struct piece_header {
  std::uint32_t head_bytes{};  // of the whole message
  std::uint32_t body_bytes{};
  std::uint32_t index{};
  std::uint32_t
      header_check{};        // of the three above and the chain: a wrong size is found before it is obeyed
  std::uint64_t checksum{};  // of the piece's content and the chain
};

inline constexpr std::size_t piece_header_bytes = 24;
using encoded_piece_header = std::array<std::byte, piece_header_bytes>;

encoded_piece_header encode(const piece_header& h);
piece_header decode_piece_header(std::span<const std::byte, piece_header_bytes> bytes);

// The chain of a message's first piece is the message's number on this session, from 0; of each further piece
// the checksum of the one before. So the last checksum covers the message, and its place in the order.
std::uint32_t header_check(std::uint64_t chain, const piece_header& h);
std::uint64_t piece_checksum(std::uint64_t chain, std::span<const std::byte> head_part,
                             std::span<const std::byte> body_part);

inline std::size_t piece_end(const piece_header& h) {
  const std::size_t content = std::size_t{h.head_bytes} + h.body_bytes;
  return std::min(content, (std::size_t{h.index} + 1) * piece_bytes_max);
}

}  // namespace perdura::transport
