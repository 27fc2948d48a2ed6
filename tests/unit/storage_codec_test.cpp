#include "storage/codec.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;

namespace {

std::vector<std::byte> round_trip(const std::vector<std::byte>& bytes, std::uint32_t width) {
  std::vector<std::byte> out(bytes.size());
  decode_chunk(chunk_codec::planes, encode_planes(bytes, width), {}, out).value();
  return out;
}

std::vector<std::byte> delta_round_trip(const std::vector<std::byte>& bytes,
                                        const std::vector<std::byte>& base, std::uint32_t width) {
  std::vector<std::byte> out(bytes.size());
  const auto stored = encode_delta(bytes, width, {hash_of(base), base});
  CHECK(base_of(stored).value() == hash_of(base));
  decode_chunk(chunk_codec::delta, stored, base, out).value();
  return out;
}

template <class T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

TEST_CASE("planes and deltas give back every byte, whatever the width and the size") {
  for (const std::uint32_t width : {1U, 2U, 3U, 4U, 8U})
    for (const std::size_t size : {0, 1, 4, 7, 8, 64, 1000, 4096, 70000}) {
      CAPTURE(width);
      CAPTURE(size);
      const auto noise = some_bytes(size, width);
      const std::vector<std::byte> zeroes(size);
      CHECK(round_trip(noise, width) == noise);
      CHECK(round_trip(zeroes, width) == zeroes);
      CHECK(delta_round_trip(noise, zeroes, width) == noise);
      CHECK(delta_round_trip(zeroes, noise, width) == zeroes);
      CHECK(delta_round_trip(noise, noise, width) == noise);
    }
}

TEST_CASE("a difference survives bit patterns that are no numbers, and those at either end") {
  constexpr float infinite = std::numeric_limits<float>::infinity();
  const std::vector<float> odd{0.0F,
                               -0.0F,
                               infinite,
                               -infinite,
                               std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::denorm_min(),
                               std::numeric_limits<float>::max(),
                               1.0F};
  const std::vector<std::uint32_t> ends{0, 1, 0x7fffffff, 0x80000000, 0x80000001, 0xffffffff, 2, 0x40000000};
  const auto floats = bytes_of(odd);
  const auto patterns = bytes_of(ends);
  CHECK(delta_round_trip(floats, patterns, 4) == floats);
  CHECK(delta_round_trip(patterns, floats, 4) == patterns);
  CHECK(delta_round_trip(patterns, floats, 2) == patterns);
  CHECK(delta_round_trip(patterns, floats, 8) == patterns);
}

TEST_CASE("of weights planes are smaller than the bytes, and the difference to a near state smaller still") {
  const auto before = weights_at(4096, 0);
  const auto after = weights_at(4096, 1);
  const auto planes = encode_planes(after, 4).size();
  const auto delta = encode_delta(after, 4, {hash_of(before), before}).size();
  CHECK(planes < after.size());
  CHECK(delta < planes);
}

TEST_CASE("stored bytes that are cut, lengthened or changed are refused or decode to as many bytes") {
  const auto bytes = weights_at(64, 0);
  const auto base = weights_at(64, 1);
  for (const auto codec : {chunk_codec::planes, chunk_codec::delta}) {
    const auto good = codec == chunk_codec::planes ? encode_planes(bytes, 4)
                                                   : encode_delta(bytes, 4, {hash_of(base), base});
    std::vector<std::byte> out(bytes.size());
    const auto decode = [&](const std::vector<std::byte>& stored) {
      return decode_chunk(codec, stored, base, out);
    };
    REQUIRE(decode(good));
    for (std::size_t i = 0; i < good.size(); ++i) {
      CHECK_FALSE(decode({good.begin(), good.begin() + static_cast<std::ptrdiff_t>(i)}));
      for (int bit = 0; bit < 8; ++bit) {
        auto other = good;
        other[i] ^= static_cast<std::byte>(1 << bit);
        if (const auto decoded = decode(other); !decoded) CHECK(decoded.failure().code == errc::corrupt);
      }
    }
    auto longer = good;
    longer.push_back(std::byte{0});
    CHECK_FALSE(decode(longer));
    std::vector<std::byte> elsewhere(bytes.size() + 4);
    CHECK_FALSE(decode_chunk(codec, good, base, elsewhere));
  }
  std::vector<std::byte> out(bytes.size());
  CHECK_FALSE(decode_chunk(chunk_codec::delta, encode_delta(bytes, 4, {hash_of(base), base}), {}, out));
  CHECK_FALSE(decode_chunk(chunk_codec::raw, some_bytes(3, 1), {}, out));
}

TEST_CASE("the codec that pays is chosen, and none where none does") {
  codec_chooser codecs;
  const auto noise = some_bytes(4096, 7);
  const auto before = weights_at(4096, 0);
  const auto after = weights_at(4096, 1);
  for (int i = 0; i < 200; ++i) {
    CHECK(codecs.encode(chunk_kind::ema, noise, 4, {}).codec == chunk_codec::raw);
    CHECK(codecs.encode(chunk_kind::parameters, before, 4, {}).codec == chunk_codec::planes);
    CHECK(codecs.encode(chunk_kind::parameters, after, 4, chunk_base{hash_of(before), before}).codec ==
          chunk_codec::delta);
  }
  // What it has learnt is no promise: what does not shrink is stored as it is.
  CHECK(codecs.encode(chunk_kind::parameters, noise, 4, {}).codec == chunk_codec::raw);
  CHECK(codec_chooser(false).encode(chunk_kind::parameters, before, 4, {}).codec == chunk_codec::raw);
}

TEST_CASE("a codec is found again when a kind of chunk changes its nature") {
  codec_chooser codecs;
  for (int i = 0; i < 10; ++i)
    CHECK(codecs.encode(chunk_kind::ema, some_bytes(4096, 7), 4, {}).codec == chunk_codec::raw);
  bool found = false;
  for (int i = 0; i < 200; ++i)
    found = found || codecs.encode(chunk_kind::ema, weights_at(4096, 0), 4, {}).codec == chunk_codec::planes;
  CHECK(found);
}
