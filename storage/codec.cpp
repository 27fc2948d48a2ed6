#include "storage/codec.hpp"

#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "actors/base/check.hpp"

namespace perdura::storage {
namespace {

constexpr int compression_level = 1;  // there are no matches to find, only frequencies
constexpr std::size_t planes_head_bytes = 4;
constexpr std::uint32_t as_it_is = std::uint32_t{1} << 31;
// A smaller gain is not worth decoding for.
constexpr double gain_least = 0.03;
constexpr unsigned chunks_between_trials = 64;

error corrupt(const char* why) {
  return {errc::corrupt, std::string("the stored bytes do not decode: ") + why};
}

void append_u32(std::vector<std::byte>& to, std::uint32_t n) {
  for (unsigned i = 0; i < sizeof n; ++i) to.push_back(static_cast<std::byte>(n >> 8 * i));
}

std::uint32_t read_u32(std::span<const std::byte> from) {
  std::uint32_t n = 0;
  for (unsigned i = 0; i < sizeof n; ++i) n |= std::to_integer<std::uint32_t>(from[i]) << 8 * i;
  return n;
}

bool is_width(std::uint32_t bytes) { return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8; }

std::uint32_t width_for(std::span<const std::byte> bytes, std::uint32_t element_bytes) {
  return is_width(element_bytes) && bytes.size() % element_bytes == 0 ? element_bytes : 1;
}

// ---- differences: small ones of either sign become small numbers without a sign

template <class Bits>
Bits folded(Bits a, Bits b) {
  const Bits d = static_cast<Bits>(a - b);
  constexpr int top = std::numeric_limits<Bits>::digits - 1;
  const Bits sign = static_cast<Bits>(Bits{0} - static_cast<Bits>(d >> top));
  return static_cast<Bits>(static_cast<Bits>(d << 1) ^ sign);
}

template <class Bits>
Bits unfolded(Bits f, Bits b) {
  const Bits sign = static_cast<Bits>(Bits{0} - static_cast<Bits>(f & 1));
  return static_cast<Bits>(b + static_cast<Bits>(static_cast<Bits>(f >> 1) ^ sign));
}

// out[i] = join(a[i], b[i]), element by element; out may be a.
template <class Bits, class Join>
void join_as(std::span<const std::byte> a, std::span<const std::byte> b, std::byte* out, Join join) {
  for (std::size_t at = 0; at < a.size(); at += sizeof(Bits)) {
    Bits x{};
    Bits y{};
    std::memcpy(&x, a.data() + at, sizeof x);
    std::memcpy(&y, b.data() + at, sizeof y);
    x = join(x, y);
    std::memcpy(out + at, &x, sizeof x);
  }
}

template <class Join>
void join(std::uint32_t width, std::span<const std::byte> a, std::span<const std::byte> b, std::byte* out,
          Join with) {
  switch (width) {
    case 1: return join_as<std::uint8_t>(a, b, out, with);
    case 2: return join_as<std::uint16_t>(a, b, out, with);
    case 4: return join_as<std::uint32_t>(a, b, out, with);
    default: return join_as<std::uint64_t>(a, b, out, with);
  }
}

// ---- planes

// Of planes of `width` bytes; contiguous loops, for that is where the time goes.
void gather_plane(std::span<const std::byte> bytes, std::size_t plane, std::size_t width,
                  std::span<std::byte> out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = bytes[i * width + plane];
}

void scatter_plane(std::span<const std::byte> in, std::size_t plane, std::size_t width,
                   std::span<std::byte> bytes) {
  for (std::size_t i = 0; i < in.size(); ++i) bytes[i * width + plane] = in[i];
}

void append_planes(std::vector<std::byte>& to, std::span<const std::byte> bytes, std::uint32_t width) {
  to.push_back(static_cast<std::byte>(width));
  to.insert(to.end(), planes_head_bytes - 1, std::byte{0});
  std::vector<std::byte> plane(bytes.size() / width);
  const std::size_t room = ZSTD_compressBound(plane.size());
  for (std::uint32_t p = 0; p < width; ++p) {
    gather_plane(bytes, p, width, plane);
    const std::size_t head = to.size();
    append_u32(to, 0);
    const std::size_t begin = to.size();
    to.resize(begin + room);
    std::size_t size = ZSTD_compress(to.data() + begin, room, plane.data(), plane.size(), compression_level);
    const bool pays = ZSTD_isError(size) == 0 && size < plane.size();
    if (!pays) {
      size = plane.size();
      if (size > 0) std::memcpy(to.data() + begin, plane.data(), size);
    }
    to.resize(begin + size);
    const auto says = static_cast<std::uint32_t>(size) | (pays ? 0 : as_it_is);
    for (unsigned i = 0; i < sizeof says; ++i) to[head + i] = static_cast<std::byte>(says >> 8 * i);
  }
}

result<void> decode_planes(std::span<const std::byte> in, std::span<std::byte> out, std::uint32_t& width) {
  if (in.size() < planes_head_bytes) return corrupt("they are too short");
  width = std::to_integer<std::uint32_t>(in[0]);
  if (!is_width(width) || in[1] != std::byte{0} || in[2] != std::byte{0} || in[3] != std::byte{0})
    return corrupt("their head is none");
  if (out.size() % width != 0) return corrupt("the size is no whole number of elements");
  in = in.subspan(planes_head_bytes);
  std::vector<std::byte> plane(out.size() / width);
  for (std::uint32_t p = 0; p < width; ++p) {
    if (in.size() < sizeof(std::uint32_t)) return corrupt("a plane is missing");
    const std::uint32_t says = read_u32(in);
    const std::size_t size = says & ~as_it_is;
    in = in.subspan(sizeof says);
    if (size > in.size()) return corrupt("a plane runs past their end");
    const auto stored = in.first(size);
    in = in.subspan(size);
    if ((says & as_it_is) != 0) {
      if (size != plane.size()) return corrupt("a plane is of another size");
      scatter_plane(stored, p, width, out);
      continue;
    }
    if (ZSTD_decompress(plane.data(), plane.size(), stored.data(), size) != plane.size())
      return corrupt("a plane does not decompress to its size");
    scatter_plane(plane, p, width, out);
  }
  if (!in.empty()) return corrupt("bytes are left over");
  return {};
}

}  // namespace

std::vector<std::byte> encode_planes(std::span<const std::byte> bytes, std::uint32_t element_bytes) {
  std::vector<std::byte> stored;
  append_planes(stored, bytes, width_for(bytes, element_bytes));
  return stored;
}

std::vector<std::byte> encode_delta(std::span<const std::byte> bytes, std::uint32_t element_bytes,
                                    const chunk_base& base) {
  PERDURA_CHECK(base.bytes.size() == bytes.size(), "a base is as long as what is told by it");
  const auto width = width_for(bytes, element_bytes);
  std::vector<std::byte> differences(bytes.size());
  join(width, bytes, base.bytes, differences.data(), [](auto a, auto b) { return folded(a, b); });
  std::vector<std::byte> stored(base.hash.bytes.size());
  std::memcpy(stored.data(), base.hash.bytes.data(), stored.size());
  append_planes(stored, differences, width);
  return stored;
}

result<content_hash> base_of(std::span<const std::byte> stored) {
  content_hash hash;
  if (stored.size() < hash.bytes.size()) return corrupt("they are too short");
  std::memcpy(hash.bytes.data(), stored.data(), hash.bytes.size());
  return hash;
}

result<void> decode_chunk(chunk_codec codec, std::span<const std::byte> stored,
                          std::span<const std::byte> base, std::span<std::byte> out) {
  std::uint32_t width = 1;
  switch (codec) {
    case chunk_codec::raw:
      if (stored.size() != out.size()) return corrupt("they are of another size");
      if (!out.empty()) std::memcpy(out.data(), stored.data(), out.size());
      return {};
    case chunk_codec::planes: return decode_planes(stored, out, width);
    case chunk_codec::delta: break;
  }
  if (stored.size() < sizeof(content_hash)) return corrupt("they are too short");
  if (base.size() != out.size()) return corrupt("the base is of another size");
  if (auto decoded = decode_planes(stored.subspan(sizeof(content_hash)), out, width); !decoded)
    return decoded;
  join(width, out, base, out.data(), [](auto f, auto b) { return unfolded(f, b); });
  return {};
}

codec_chooser::encoded codec_chooser::encode(chunk_kind kind, std::span<const std::byte> bytes,
                                             std::uint32_t element_bytes,
                                             const std::optional<chunk_base>& base) {
  encoded best{chunk_codec::raw, {}};
  if (!may_compress_ || bytes.empty()) return best;
  auto& known = known_[{kind, base.has_value()}];
  const bool is_trial = known.until_next_trial == 0;
  known.until_next_trial = is_trial ? chunks_between_trials : known.until_next_trial - 1;
  auto size_to_beat = static_cast<std::size_t>(static_cast<double>(bytes.size()) * (1 - gain_least));
  const auto consider = [&](chunk_codec codec) {
    if (!is_trial && known.best != codec) return;
    auto stored = codec == chunk_codec::delta ? encode_delta(bytes, element_bytes, *base)
                                              : encode_planes(bytes, element_bytes);
    if (stored.size() >= size_to_beat) return;
    size_to_beat = stored.size();
    best = {codec, std::move(stored)};
  };
  if (base) consider(chunk_codec::delta);
  consider(chunk_codec::planes);
  if (is_trial) known.best = best.codec;
  return best;
}

}  // namespace perdura::storage
