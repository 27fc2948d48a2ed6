#include "kernels/dit_pointwise.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/simd.hpp"

namespace perdura::kernels {
namespace {

using namespace simd;

// f(pointer offset) on whole vectors; the rest goes through zero-filled ones.
template <class F>
PERDURA_INLINE void map(std::int64_t count, const float* x, float* y, F f) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(y + i, f(load(x + i)));
  if (i == count) return;
  float rest[lanes] = {};
  std::copy(x + i, x + count, rest);
  store(rest, f(load(rest)));
  std::copy_n(rest, count - i, y + i);
}

template <class F>
PERDURA_INLINE void map(std::int64_t count, const float* x, const float* y, float* z, F f) {
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) store(z + i, f(load(x + i), load(y + i)));
  if (i == count) return;
  float left[lanes] = {}, right[lanes] = {};
  std::copy(x + i, x + count, left);
  std::copy(y + i, y + count, right);
  store(left, f(load(left), load(right)));
  std::copy_n(left, count - i, z + i);
}

constexpr float gelu_linear = 1.5957691216F;    // 2 sqrt(2/pi)
constexpr float gelu_cubic = 0.0713548162726F;  // 0.044715 of that

PERDURA_INLINE f8 gelu_sigmoid(f8 x, f8 square) {
  return sigmoid(x * fma(square, splat(gelu_cubic), splat(gelu_linear)));
}

PERDURA_INLINE f8 gelu_slope(f8 x) {
  const f8 square = x * x;
  const f8 s = gelu_sigmoid(x, square);
  const f8 inner = x * fma(square, splat(3.0F * gelu_cubic), splat(gelu_linear));
  return fma(s * (splat(1.0F) - s), inner, s);
}

// Sine and cosine of an angle in [0, 1e6], within 1e-9: reduced by multiples of pi/2 in two parts, then
// Taylor.
void sine_cosine(double angle, double* sine, double* cosine) {
  const double quarter = std::floor(std::fma(angle, 0.63661977236758134, 0.5));
  double r = std::fma(-quarter, 1.5707963267948966, angle);
  r = std::fma(-quarter, 6.123233995736766e-17, r);
  const double z = r * r;
  double s = -2.5052108385441720e-8, c = -2.7557319223985888e-7;
  s = std::fma(s, z, 2.7557319223985893e-6);
  s = std::fma(s, z, -1.9841269841269841e-4);
  s = std::fma(s, z, 8.3333333333333332e-3);
  s = std::fma(s, z, -1.6666666666666666e-1);
  s = std::fma(s * z, r, r);
  c = std::fma(c, z, 2.4801587301587302e-5);
  c = std::fma(c, z, -1.3888888888888889e-3);
  c = std::fma(c, z, 4.1666666666666664e-2);
  c = std::fma(c, z, -0.5);
  c = std::fma(c, z, 1.0);
  const auto turn = static_cast<std::int64_t>(quarter) & 3;
  *sine = (turn & 1 ? c : s) * (turn & 2 ? -1.0 : 1.0);
  *cosine = (turn & 1 ? s : c) * (turn == 1 || turn == 2 ? -1.0 : 1.0);
}

}  // namespace

void gelu(std::int64_t count, const float* x, float* y) {
  map(count, x, y, [](f8 v) { return v * gelu_sigmoid(v, v * v); });
}

void gelu_backward(std::int64_t rows, std::int64_t columns, const float* x, const float* d_y, float* d_x,
                   float* d_bias) {
  std::fill_n(d_bias, columns, 0.0F);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t at = i * columns;
    map(columns, x + at, d_y + at, d_x + at, [](f8 v, f8 d) { return d * gelu_slope(v); });
    map(columns, d_bias, d_x + at, d_bias, [](f8 sum, f8 d) { return sum + d; });
  }
}

void silu(std::int64_t count, const float* x, float* y) {
  map(count, x, y, [](f8 v) { return v * sigmoid(v); });
}

void silu_backward(std::int64_t count, const float* x, const float* d_y, float* d_x) {
  map(count, x, d_y, d_x, [](f8 v, f8 d) {
    const f8 s = sigmoid(v);
    return d * fma(v * s, splat(1.0F) - s, s);
  });
}

void column_sums(std::int64_t rows, std::int64_t columns, const float* x, float* out) {
  std::fill_n(out, columns, 0.0F);
  for (std::int64_t i = 0; i < rows; ++i) {
    map(columns, out, x + i * columns, out, [](f8 sum, f8 v) { return sum + v; });
  }
}

void time_features(float time, float* out) {
  constexpr std::int64_t half = time_features_count / 2;
  double frequency = 1.0;
  for (std::int64_t i = 0; i < half; ++i) {
    double sine = 0, cosine = 0;
    sine_cosine(static_cast<double>(time * 1000.0F * static_cast<float>(frequency)), &sine, &cosine);
    out[i] = static_cast<float>(cosine);
    out[half + i] = static_cast<float>(sine);
    frequency *= 0.93057204092969897;  // 10000^(-1/half)
  }
}

}  // namespace perdura::kernels
