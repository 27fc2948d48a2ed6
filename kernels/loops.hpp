// The loops behind backend.hpp. Included by one source file an instruction set, hence everything is in an
// unnamed namespace and nothing but always-inlined functions of other headers is called.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "kernels/backend.hpp"
#include "kernels/elementary.hpp"

namespace perdura::kernels {
namespace {

constexpr std::size_t philox_lanes = 16;  // blocks drawn together
constexpr std::size_t sum_lanes = 16;     // part of norm2's definition
constexpr std::size_t chunk = 1024;       // elements that go through the whole tree while in the L1 cache
static_assert(chunk % sum_lanes == 0);

struct philox_words {
  alignas(64) std::uint32_t word[4][philox_lanes];
};

// Blocks first .. first + philox_lanes of the sequence, word by word.
inline void draw(const random_key& key, std::uint32_t first, philox_words& out) {
  const auto k = philox_key_of(key);
  const auto base = philox_counter_of(key, 0);
  for (std::size_t lane = 0; lane < philox_lanes; ++lane) {
    std::uint32_t c0 = first + static_cast<std::uint32_t>(lane);
    std::uint32_t c1 = base[1];
    std::uint32_t c2 = base[2];
    std::uint32_t c3 = base[3];
    std::uint32_t k0 = k[0];
    std::uint32_t k1 = k[1];
#pragma GCC unroll 10
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t a = std::uint64_t{0xD2511F53} * c0;
      const std::uint64_t b = std::uint64_t{0xCD9E8D57} * c2;
      c0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
      c2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
      c1 = static_cast<std::uint32_t>(b);
      c3 = static_cast<std::uint32_t>(a);
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    out.word[0][lane] = c0;
    out.word[1][lane] = c1;
    out.word[2][lane] = c2;
    out.word[3][lane] = c3;
  }
}

// Calls store(values) with each run of 4 * philox_lanes elements, where values[4 * lane + word] is in order.
template <class Make>
inline void fill(const random_key& key, std::uint32_t first_block, float* out, std::size_t count, Make make) {
  constexpr std::size_t run = 4 * philox_lanes;
  philox_words words;
  alignas(64) float planes[4][philox_lanes];
  for (std::size_t at = 0; at < count; at += run) {
    draw(key, first_block + static_cast<std::uint32_t>(at / 4), words);
    make(words, planes);
    const std::size_t n = count - at < run ? count - at : run;
    if (n == run) {
      for (std::size_t lane = 0; lane < philox_lanes; ++lane)
        for (std::size_t word = 0; word < 4; ++word) out[at + 4 * lane + word] = planes[word][lane];
    } else {
      for (std::size_t i = 0; i < n; ++i) out[at + i] = planes[i % 4][i / 4];
    }
  }
}

void fill_uniform_loop(const random_key& key, std::uint32_t first_block, float* out, std::size_t count) {
  fill(key, first_block, out, count, [](const philox_words& words, float(&planes)[4][philox_lanes]) {
    for (std::size_t word = 0; word < 4; ++word)
      for (std::size_t lane = 0; lane < philox_lanes; ++lane)
        planes[word][lane] =
            static_cast<float>(static_cast<std::int32_t>(words.word[word][lane] >> 8)) * 0x1p-24F;
  });
}

void fill_normal_loop(const random_key& key, std::uint32_t first_block, float* out, std::size_t count) {
  fill(key, first_block, out, count, [](const philox_words& words, float(&planes)[4][philox_lanes]) {
    for (std::size_t pair = 0; pair < 4; pair += 2)
      for (std::size_t lane = 0; lane < philox_lanes; ++lane) {
        const auto [first, second] = normals_of(words.word[pair][lane], words.word[pair + 1][lane]);
        planes[pair][lane] = first;
        planes[pair + 1][lane] = second;
      }
  });
}

void add_loop(const float* left, const float* right, float* out, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) out[i] = left[i] + right[i];
}

// Sixteen partial sums of squares; element i of the array goes to lane i mod 16.
struct square_sums {
  alignas(64) double lane[sum_lanes] = {};

  // `values` starts at a multiple of sum_lanes.
  void take(const float* values, std::size_t count) {
    std::size_t i = 0;
    for (; i + sum_lanes <= count; i += sum_lanes)
      for (std::size_t j = 0; j < sum_lanes; ++j) {
        const double x = values[i + j];
        lane[j] = std::fma(x, x, lane[j]);
      }
    for (std::size_t j = 0; i + j < count; ++j) {
      const double x = values[i + j];
      lane[j] = std::fma(x, x, lane[j]);
    }
  }
  double total() const {
    double sums[sum_lanes];
    for (std::size_t j = 0; j < sum_lanes; ++j) sums[j] = lane[j];
    for (std::size_t width = 1; width < sum_lanes; width *= 2)
      for (std::size_t j = 0; j < sum_lanes; j += 2 * width) sums[j] += sums[j + width];
    return sums[0];
  }
};

double norm2_loop(const float* values, std::size_t count) {
  square_sums squares;
  squares.take(values, count);
  return squares.total();
}

// The pending sums are a binary counter: sizes fall strictly, so two equal ones are siblings of the tree.
double reduce_loop(const reduce_input* inputs, std::size_t inputs_count, float scale, float* out,
                   std::size_t count) {
  struct pending {
    const float* values;
    std::uint32_t slots;
  };
  alignas(64) float sums[slots_log2_max + 2][chunk];
  pending stack[slots_log2_max + 2];
  square_sums squares;
  for (std::size_t at = 0; at < count; at += chunk) {
    const std::size_t n = count - at < chunk ? count - at : chunk;
    std::size_t depth = 0;
    for (std::size_t k = 0; k < inputs_count; ++k) {
      stack[depth++] = {inputs[k].values + at, inputs[k].slots};
      while (depth > 1 && stack[depth - 1].slots == stack[depth - 2].slots) {
        --depth;
        add_loop(stack[depth - 1].values, stack[depth].values, sums[depth - 1], n);
        stack[depth - 1] = {sums[depth - 1], 2 * stack[depth - 1].slots};
      }
    }
    const float* total = stack[0].values;
    for (std::size_t i = 0; i < n; ++i) out[at + i] = total[i] * scale;
    squares.take(out + at, n);
  }
  return squares.total();
}

void adamw_loop(const adamw_scalars& s, const adamw_tile& tile, const float* gradient, std::size_t count) {
  float* __restrict p = tile.parameters;
  float* __restrict m = tile.first_moment;
  float* __restrict v = tile.second_moment;
  float* __restrict a = tile.average;
  const float* __restrict g = gradient;
  const adamw_scalars c = s;
  for (std::size_t i = 0; i < count; ++i) {
    const float slope = g[i] * c.clip;
    const float first = std::fma(slope - m[i], c.first_weight, m[i]);
    const float second = std::fma(slope * c.second_weight, slope, v[i] * c.second_keep);
    const float divisor = std::fma(std::sqrt(second), c.inverse_root, c.epsilon);
    const float value = std::fma(-c.step_size, first / divisor, p[i] * c.keep);
    m[i] = first;
    v[i] = second;
    p[i] = value;
    a[i] = std::fma(value - a[i], c.average_weight, a[i]);
  }
}

void blend_loop(const std::uint8_t* pixels, float time, float* noise_then_target, float* noisy,
                std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const float x = std::fma(static_cast<float>(pixels[i]), 2.0F / 255.0F, -1.0F);
    const float velocity = noise_then_target[i] - x;
    noisy[i] = std::fma(time, velocity, x);
    noise_then_target[i] = velocity;
  }
}

void to_bf16_loop(const float* from, bf16* to, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) to[i] = bf16_of(from[i]);
}

constexpr backend make_backend(const char* name) {
  return {name,       fill_uniform_loop, fill_normal_loop, add_loop,    reduce_loop,
          norm2_loop, adamw_loop,        blend_loop,       to_bf16_loop};
}

}  // namespace
}  // namespace perdura::kernels
