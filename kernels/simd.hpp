// Eight floats at a time, with the same bits on every instruction set: only IEEE operations and explicit fma.
// Include it from files compiled for the vector unit alone (see kernels/CMakeLists.txt): all of it is inlined
// there.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/bf16.hpp"

// PERDURA_PORTABLE: the plain loops even so, for the test that both give the same bits.
#if defined(__AVX2__) && defined(__FMA__) && !defined(PERDURA_PORTABLE)
#include <immintrin.h>
#define PERDURA_AVX2 1
#endif

#define PERDURA_INLINE [[gnu::always_inline]] static inline

namespace perdura::kernels::simd {

inline constexpr std::int64_t lanes = 8;

#ifdef PERDURA_AVX2

struct f8 {
  __m256 v;
};
PERDURA_INLINE f8 load(const float* p) { return {_mm256_loadu_ps(p)}; }
PERDURA_INLINE void store(float* p, f8 a) { _mm256_storeu_ps(p, a.v); }
PERDURA_INLINE f8 splat(float a) { return {_mm256_set1_ps(a)}; }
PERDURA_INLINE f8 operator+(f8 a, f8 b) { return {_mm256_add_ps(a.v, b.v)}; }
PERDURA_INLINE f8 operator-(f8 a, f8 b) { return {_mm256_sub_ps(a.v, b.v)}; }
PERDURA_INLINE f8 operator*(f8 a, f8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
PERDURA_INLINE f8 operator/(f8 a, f8 b) { return {_mm256_div_ps(a.v, b.v)}; }
// a * b + c, and c - a * b, rounded once.
PERDURA_INLINE f8 fma(f8 a, f8 b, f8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
PERDURA_INLINE f8 fnma(f8 a, f8 b, f8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
// The second operand where one is NaN, as the hardware has it.
PERDURA_INLINE f8 min(f8 a, f8 b) { return {_mm256_min_ps(a.v, b.v)}; }
PERDURA_INLINE f8 max(f8 a, f8 b) { return {_mm256_max_ps(a.v, b.v)}; }
PERDURA_INLINE f8 round(f8 a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// 2^n for integral n in [-126, 127].
PERDURA_INLINE f8 power_of_two(f8 n) {
  const __m256i e = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(e, 23))};
}
// As bf16_of, and back.
PERDURA_INLINE f8 rounded_to_bf16(f8 a) {
  const __m256i bits = _mm256_castps_si256(a.v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  const __m256i chosen = _mm256_blendv_epi8(nearest, quiet, is_nan);
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_srli_epi32(chosen, 16), 16))};
}
PERDURA_INLINE f8 load(const bf16* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16))};
}

// Rows become columns.
PERDURA_INLINE void transpose(f8 (&r)[8]) {
  __m256 t[8], u[8];
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i].v, r[2 * i + 1].v);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i].v, r[2 * i + 1].v);
  }
  for (int i = 0; i < 8; i += 4) {
    u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xEE);
    u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    r[i].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
    r[i + 4].v = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
  }
}

#else

struct f8 {
  float v[8];
};
template <class F>
PERDURA_INLINE f8 each(F f) {
  f8 r;
  for (int i = 0; i < 8; ++i) r.v[i] = f(i);
  return r;
}
PERDURA_INLINE f8 load(const float* p) {
  return each([&](int i) { return p[i]; });
}
PERDURA_INLINE void store(float* p, f8 a) { std::memcpy(p, a.v, sizeof a.v); }
PERDURA_INLINE f8 splat(float a) {
  return each([&](int) { return a; });
}
PERDURA_INLINE f8 operator+(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] + b.v[i]; });
}
PERDURA_INLINE f8 operator-(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] - b.v[i]; });
}
PERDURA_INLINE f8 operator*(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] * b.v[i]; });
}
PERDURA_INLINE f8 operator/(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] / b.v[i]; });
}
PERDURA_INLINE f8 fma(f8 a, f8 b, f8 c) {
  return each([&](int i) { return std::fma(a.v[i], b.v[i], c.v[i]); });
}
PERDURA_INLINE f8 fnma(f8 a, f8 b, f8 c) {
  return each([&](int i) { return std::fma(-a.v[i], b.v[i], c.v[i]); });
}
PERDURA_INLINE f8 min(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
PERDURA_INLINE f8 max(f8 a, f8 b) {
  return each([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
PERDURA_INLINE f8 round(f8 a) {
  return each([&](int i) { return std::nearbyint(a.v[i]); });
}
PERDURA_INLINE f8 power_of_two(f8 n) {
  return each([&](int i) {
    const std::uint32_t bits = static_cast<std::uint32_t>(static_cast<std::int32_t>(n.v[i]) + 127) << 23;
    float r;
    std::memcpy(&r, &bits, sizeof r);
    return r;
  });
}
PERDURA_INLINE f8 rounded_to_bf16(f8 a) {
  return each([&](int i) { return float_of(bf16_of(a.v[i])); });
}
PERDURA_INLINE f8 load(const bf16* p) {
  return each([&](int i) { return float_of(p[i]); });
}
PERDURA_INLINE void transpose(f8 (&r)[8]) {
  for (int i = 0; i < 8; ++i) {
    for (int j = i + 1; j < 8; ++j) std::swap(r[i].v[j], r[j].v[i]);
  }
}

#endif

PERDURA_INLINE f8 zero() { return splat(0.0F); }

// Pairs at distance 4, then 2, then 1: the one order in which lanes are ever summed.
PERDURA_INLINE float sum(f8 a) {
  float v[8];
  store(v, a);
  const float s0 = v[0] + v[4], s1 = v[1] + v[5], s2 = v[2] + v[6], s3 = v[3] + v[7];
  return (s0 + s2) + (s1 + s3);
}
PERDURA_INLINE float maximum(f8 a) {
  float v[8];
  store(v, a);
  float m = v[0];
  for (int i = 1; i < 8; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// e^x within 2 units in the last place for x in [-87.3, 88]; outside, that of the nearer end. NaN stays NaN.
PERDURA_INLINE f8 exp(f8 x) {
  const f8 bounded = min(splat(88.0F), max(splat(-87.3F), x));
  const f8 n = round(bounded * splat(1.44269504F));
  f8 r = fnma(n, splat(0.693359375F), bounded);
  r = fnma(n, splat(-2.12194440e-4F), r);
  f8 p = splat(1.9875691500e-4F);
  p = fma(p, r, splat(1.3981999507e-3F));
  p = fma(p, r, splat(8.3334519073e-3F));
  p = fma(p, r, splat(4.1665795894e-2F));
  p = fma(p, r, splat(1.6666665459e-1F));
  p = fma(p, r, splat(5.0000001201e-1F));
  p = fma(p, r * r, r + splat(1.0F));
  return p * power_of_two(n);
}

PERDURA_INLINE f8 sigmoid(f8 x) { return splat(1.0F) / (splat(1.0F) + exp(zero() - x)); }

}  // namespace perdura::kernels::simd
