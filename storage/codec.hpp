// How the bytes of a chunk are stored. Floating point has little to find but the frequencies of its bytes: so
// elements are cut into planes (all first bytes, all second bytes, ...), each compressed by itself where that
// pays. A delta stores the planes of the differences to a base, the bit patterns taken as integers: near
// values differ in few low bits, whatever their sign. Little-endian.
//   planes: u8 bytes an element, u8[3] zero; then each plane: u32 size and, in the highest bit, whether it is
//           stored as it is; its bytes
//   delta:  32 B SHA-256 of the base's decoded bytes; then planes
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/chunk.hpp"

namespace perdura::storage {

struct chunk_base {
  content_hash hash;
  std::span<const std::byte> bytes;
};

// Elements have 1, 2, 4 or 8 bytes; of an array that is no whole number of them, bytes are the elements.
std::vector<std::byte> encode_planes(std::span<const std::byte> bytes, std::uint32_t element_bytes);
// The base is as long as the bytes.
std::vector<std::byte> encode_delta(std::span<const std::byte> bytes, std::uint32_t element_bytes,
                                    const chunk_base& base);

// Fills `out`, which has the decoded size. `base`: what base_of() names, decoded; without one for other
// codecs. Hostile bytes are only refused: error corrupt. That the result is right, its hash alone can tell.
result<void> decode_chunk(chunk_codec codec, std::span<const std::byte> stored,
                          std::span<const std::byte> base, std::span<std::byte> out);
// Which base the stored bytes of a delta need.
result<content_hash> base_of(std::span<const std::byte> stored);

// Which codec pays, learnt from the chunks before: of each kind every so often all are tried. Not
// thread-safe.
class codec_chooser {
 public:
  explicit codec_chooser(bool may_compress = true) : may_compress_(may_compress) {}
  struct encoded {
    chunk_codec codec = chunk_codec::raw;
    std::vector<std::byte> bytes;  // empty for raw: they are the decoded ones
  };
  encoded encode(chunk_kind kind, std::span<const std::byte> bytes, std::uint32_t element_bytes,
                 const std::optional<chunk_base>& base);

 private:
  struct experience {
    chunk_codec best = chunk_codec::raw;
    unsigned until_next_trial = 0;
  };
  const bool may_compress_;
  std::map<std::pair<chunk_kind, bool>, experience> known_;  // by kind, and whether there is a base
};

}  // namespace perdura::storage
