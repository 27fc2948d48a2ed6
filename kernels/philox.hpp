// All randomness of a job: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011) keyed by what a number is for. No state, no rank, nothing to restore, and the same bits on every CPU.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "actors/base/check.hpp"

namespace perdura::kernels {

using philox_counter = std::array<std::uint32_t, 4>;
using philox_key = std::array<std::uint32_t, 2>;

[[gnu::always_inline]] constexpr philox_counter philox4x32_10(philox_counter c, philox_key k) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53} * c[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<std::uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<std::uint32_t>(b),
         static_cast<std::uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<std::uint32_t>(a)};
    k = {k[0] + 0x9E3779B9, k[1] + 0xBB67AE85};
  }
  return c;
}

// What a number is for. The values are part of every result: append only.
enum class random_stream : std::uint8_t {
  noise = 1,
  time = 2,
  label_drop = 3,
  shuffle = 4,
  initial = 5,
  latent = 6,
  canary = 7
};

// A sequence of 2^32 elements. `step` has 56 bits; `sample` is a position in the batch, a parameter's index,
// an epoch's round: whatever the stream counts.
struct random_key {
  std::uint64_t seed{};
  std::uint64_t step{};
  std::uint32_t sample{};
  random_stream stream{};
};

constexpr philox_key philox_key_of(const random_key& key) {
  return {static_cast<std::uint32_t>(key.seed), static_cast<std::uint32_t>(key.seed >> 32)};
}
constexpr philox_counter philox_counter_of(const random_key& key, std::uint32_t block) {
  return {block, key.sample, static_cast<std::uint32_t>(key.step),
          static_cast<std::uint32_t>(key.step >> 32) | static_cast<std::uint32_t>(key.stream) << 24};
}

// Element e is word e % 4 of the block e / 4.
constexpr std::uint32_t random_word(const random_key& key, std::uint32_t element) {
  return philox4x32_10(philox_counter_of(key, element / 4), philox_key_of(key))[element % 4];
}
// In [0, 1): 24 bits, exact.
constexpr float random_uniform(const random_key& key, std::uint32_t element) {
  return static_cast<float>(random_word(key, element) >> 8) * 0x1p-24F;
}
// Standard normal (Box-Muller on the words 2i and 2i + 1): the same bits as fill_normal gives.
float random_normal(const random_key& key, std::uint32_t element);

// out[i] is element first + i of the sequence.
void fill_uniform(const random_key& key, std::span<float> out, std::uint32_t first = 0);
void fill_normal(const random_key& key, std::span<float> out, std::uint32_t first = 0);

}  // namespace perdura::kernels
