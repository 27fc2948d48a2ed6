// A trainer whose state is a hash: any gradient that is computed from the wrong parameters, reduced in
// another order, applied twice or with other scalars ends in other bits.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/plan.hpp"

namespace perdura::sim {

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = a * 0x9e3779b97f4a7c15ULL ^ (b + 0x7f4a7c159e3779b9ULL + (a << 6) + (a >> 2));
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ULL;
  x ^= x >> 32;
  return x;
}

struct toy_tile {
  std::uint64_t parameters{};
  std::uint64_t moments{};
  bool operator==(const toy_tile&) const = default;
};

template <class T>
blob blob_of(const T& v) {
  auto owner = std::make_shared<const T>(v);
  const auto* bytes = reinterpret_cast<const std::byte*>(owner.get());
  return {std::move(owner), bytes, sizeof v};
}
inline blob to_blob(std::uint64_t v) { return blob_of(v); }
inline std::uint64_t to_value(const blob& b) {
  std::uint64_t v{};
  std::memcpy(&v, b.data(), sizeof v);
  return v;
}

inline toy_tile initial_tile(std::uint32_t t) { return {mix(1, t), mix(2, t)}; }

inline std::uint64_t fold(const std::vector<toy_tile>& tiles) {
  std::uint64_t all = 0;
  for (const auto& t : tiles) all = mix(all, t.parameters);
  return all;
}

// The gradient of a block on a tile: a node of the tree over slots.
inline std::uint64_t block_value(std::uint64_t parameters, step_number step, block b, std::uint32_t tile) {
  if (b.size == 1) return mix(mix(parameters, step.value), (std::uint64_t{b.first} << 32) + tile);
  const auto half = b.size / 2;
  return mix(block_value(parameters, step, {b.first, half}, tile),
             block_value(parameters, step, {b.first + half, half}, tile));
}

// Finishes the tree over [b.first, b.end()) from the values of disjoint blocks in the order of their slots.
template <class Next>
std::uint64_t finish_tree(block b, Next&& next) {
  const auto [slots, value] = next.peek();
  if (slots == b) {
    next.pop();
    return value;
  }
  const auto half = b.size / 2;
  const auto left = finish_tree({b.first, half}, next);
  return mix(left, finish_tree({b.first + half, half}, next));
}

inline double norm2_of(std::uint64_t gradient) { return static_cast<double>(gradient >> 12) * 0x1p-52; }
inline double loss_of(std::uint64_t gradient) { return static_cast<double>(gradient & 0xffff); }

inline toy_tile applied(const toy_tile& t, std::uint64_t gradient, const step_outcome& o) {
  std::uint64_t scalars = std::bit_cast<std::uint64_t>(o.gradient_norm);
  scalars = mix(scalars, std::bit_cast<std::uint32_t>(o.clip_scale));
  scalars = mix(scalars, std::bit_cast<std::uint32_t>(o.learning_rate));
  scalars = mix(scalars, o.optimizer_time);
  const auto moments = mix(mix(t.moments, gradient), scalars);
  return {mix(t.parameters, moments), moments};
}

}  // namespace perdura::sim
