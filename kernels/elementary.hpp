// Elementary functions in fp32 with the same bits on every CPU: polynomials (Cephes' coefficients) with
// explicit fma instead of the C library's, whose results change with its version. Errors: at most 2 ulp,
// tested. Always inlined, so that no copy compiled for a newer instruction set is linked into code for an
// older one.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace perdura::kernels {

// x: positive and normal.
[[gnu::always_inline]] inline float log_of(float x) {
  constexpr std::uint32_t root_half = 0x3F3504F3;  // so that the mantissa falls into [sqrt(1/2), sqrt(2))
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const auto exponent = static_cast<std::int32_t>(bits - root_half) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(exponent) << 23)) - 1.0F;
  const auto e = static_cast<float>(exponent);
  const float z = f * f;
  float p = 7.0376836292E-2F;
  p = std::fma(p, f, -1.1514610310E-1F);
  p = std::fma(p, f, 1.1676998740E-1F);
  p = std::fma(p, f, -1.2420140846E-1F);
  p = std::fma(p, f, 1.4249322787E-1F);
  p = std::fma(p, f, -1.6668057665E-1F);
  p = std::fma(p, f, 2.0000714765E-1F);
  p = std::fma(p, f, -2.4999993993E-1F);
  p = std::fma(p, f, 3.3333331174E-1F);
  float y = p * f * z;
  y = std::fma(e, -2.12194440E-4F, y);
  y = std::fma(z, -0.5F, y);
  return std::fma(e, 0.693359375F, f + y);
}

struct sine_cosine {
  float sine;
  float cosine;
};

// Of the angle 2 pi u / 2^24, u < 2^24: the quadrant is found in integers, exactly.
[[gnu::always_inline]] inline sine_cosine sine_cosine_of_turn(std::uint32_t u) {
  const std::uint32_t quadrant = (u + (1U << 21)) >> 22;
  const auto rest = static_cast<std::int32_t>(u - (quadrant << 22));
  const float a = static_cast<float>(rest) * static_cast<float>(1.5707963267948966 * 0x1p-22);
  const float z = a * a;
  float s = -1.9515295891E-4F;
  s = std::fma(s, z, 8.3321608736E-3F);
  s = std::fma(s, z, -1.6666654611E-1F);
  s = std::fma(s * z, a, a);
  float c = 2.443315711809948E-5F;
  c = std::fma(c, z, -1.388731625493765E-3F);
  c = std::fma(c, z, 4.166664568298827E-2F);
  c = std::fma(c * z, z, std::fma(z, -0.5F, 1.0F));
  const std::uint32_t swap = 0U - (quadrant & 1U);
  const auto sb = std::bit_cast<std::uint32_t>(s);
  const auto cb = std::bit_cast<std::uint32_t>(c);
  const std::uint32_t sine = (sb & ~swap) | (cb & swap);
  const std::uint32_t cosine = (cb & ~swap) | (sb & swap);
  return {std::bit_cast<float>(sine ^ (quadrant & 2U) << 30),
          std::bit_cast<float>(cosine ^ ((quadrant + 1U) & 2U) << 30)};
}

// Clamped to [-87, 88], where the result is a normal number.
[[gnu::always_inline]] inline float exp_of(float x) {
  x = x < -87.0F ? -87.0F : x > 88.0F ? 88.0F : x;
  const float scaled = x * 1.44269504F;
  const auto n = static_cast<std::int32_t>(scaled + (scaled < 0.0F ? -0.5F : 0.5F));
  const auto nf = static_cast<float>(n);
  const float r = std::fma(nf, 2.12194440E-4F, std::fma(nf, -0.693359375F, x));
  float p = 1.9875691500E-4F;
  p = std::fma(p, r, 1.3981999507E-3F);
  p = std::fma(p, r, 8.3334519073E-3F);
  p = std::fma(p, r, 4.1665795894E-2F);
  p = std::fma(p, r, 1.6666665459E-1F);
  p = std::fma(p, r, 5.0000001201E-1F);
  p = std::fma(p * r, r, r) + 1.0F;
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

// The standard normals z0 = r cos(t), z1 = r sin(t) of Box and Muller from two random words.
struct normal_pair {
  float first;
  float second;
};
[[gnu::always_inline]] inline normal_pair normals_of(std::uint32_t a, std::uint32_t b) {
  const float u = static_cast<float>(static_cast<std::int32_t>((a >> 8) + 1)) * 0x1p-24F;  // (0, 1]
  const float radius = std::sqrt(-2.0F * log_of(u));
  const auto [sine, cosine] = sine_cosine_of_turn(b >> 8);
  return {radius * cosine, radius * sine};
}

}  // namespace perdura::kernels
