// bfloat16: the upper half of a float32. Rounded to the nearest, ties to even; a NaN stays one.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace perdura::kernels {

struct bf16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] inline bf16 bf16_of(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t nearest = bits + 0x7FFF + (bits >> 16 & 1);
  return {static_cast<std::uint16_t>((x != x ? bits | 0x400000 : nearest) >> 16)};
}
[[gnu::always_inline]] inline float float_of(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

void round_to_bf16(std::span<const float> from, std::span<bf16> to);

}  // namespace perdura::kernels
