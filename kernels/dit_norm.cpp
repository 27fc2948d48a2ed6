#include "kernels/dit_norm.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/simd.hpp"

namespace perdura::kernels {
namespace {

using namespace simd;

constexpr float epsilon = 1e-6F;

void normalise_row(std::int64_t width, const float* x, const float* scale, const float* shift, float row_sum,
                   float* normal, float* reciprocal, float* modulated) {
  const float mean = row_sum / static_cast<float>(width);
  f8 squares = zero();
  for (std::int64_t j = 0; j < width; j += lanes) {
    const f8 centred = load(x + j) - splat(mean);
    squares = fma(centred, centred, squares);
  }
  const float root = std::sqrt(sum(squares) / static_cast<float>(width) + epsilon);
  *reciprocal = 1.0F / root;
  for (std::int64_t j = 0; j < width; j += lanes) {
    const f8 n = (load(x + j) - splat(mean)) * splat(*reciprocal);
    store(normal + j, n);
    store(modulated + j, fma(n, splat(1.0F) + load(scale + j), load(shift + j)));
  }
}

// The layer norm's derivative, added to that of what lies behind.
void differentiate_norm_row(std::int64_t width, const float* d_modulated, const float* normal,
                            float reciprocal, const float* scale, bool add, float* d_sum) {
  f8 total = zero(), along = zero();
  for (std::int64_t j = 0; j < width; j += lanes) {
    const f8 d = load(d_modulated + j) * (splat(1.0F) + load(scale + j));
    total = total + d;
    along = fma(d, load(normal + j), along);
  }
  const float mean = sum(total) / static_cast<float>(width);
  const float mean_along = sum(along) / static_cast<float>(width);
  for (std::int64_t j = 0; j < width; j += lanes) {
    const f8 d = load(d_modulated + j) * (splat(1.0F) + load(scale + j));
    const f8 inner = fnma(load(normal + j), splat(mean_along), d - splat(mean));
    store(d_sum + j, fma(splat(reciprocal), inner, add ? load(d_sum + j) : zero()));
  }
}

PERDURA_INLINE void add_to(float* sums, f8 value) { store(sums, load(sums) + value); }

PERDURA_INLINE void differentiate_gate_row(std::int64_t width, const float* d_sum, const float* branch,
                                           const float* gate, float* d_branch, float* d_gate, float* d_bias) {
  for (std::int64_t j = 0; j < width; j += lanes) {
    const f8 d = load(d_sum + j);
    const f8 along = d * load(gate + j);
    store(d_branch + j, along);
    store(d_gate + j, fma(d, load(branch + j), load(d_gate + j)));
    add_to(d_bias + j, along);
  }
}

}  // namespace

void seam_forward(const token_grid& grid, const seam& s) {
  const std::int64_t width = grid.width;
  for (std::int64_t row = 0; row < grid.rows(); ++row) {
    const std::int64_t sample = row / grid.tokens;
    const std::int64_t at = row * width;
    const float* x = s.stream + at;
    f8 total = zero();
    if (s.branch) {
      const float* gate = s.gate.of(sample);
      for (std::int64_t j = 0; j < width; j += lanes) {
        const f8 v = fma(load(gate + j), load(s.branch + at + j), load(x + j));
        store(s.sum + at + j, v);
        total = total + v;
      }
      x = s.sum + at;
    } else {
      for (std::int64_t j = 0; j < width; j += lanes) total = total + load(x + j);
    }
    normalise_row(width, x, s.scale.of(sample), s.shift.of(sample), sum(total), s.normal + at,
                  s.reciprocal + row, s.modulated + at);
  }
}

void seam_backward(const token_grid& grid, const seam_derivative& s) {
  const std::int64_t width = grid.width;
  if (s.branch) std::fill_n(s.d_bias, width, 0.0F);
  for (std::int64_t sample = 0; sample < grid.samples; ++sample) {
    float* d_scale = s.d_scale.of(sample);
    float* d_shift = s.d_shift.of(sample);
    std::fill_n(d_scale, width, 0.0F);
    std::fill_n(d_shift, width, 0.0F);
    if (s.branch) std::fill_n(s.d_gate.of(sample), width, 0.0F);
    for (std::int64_t row = sample * grid.tokens; row < (sample + 1) * grid.tokens; ++row) {
      const std::int64_t at = row * width;
      differentiate_norm_row(width, s.d_modulated + at, s.normal + at, s.reciprocal[row], s.scale.of(sample),
                             s.sum_is_used, s.d_sum + at);
      for (std::int64_t j = 0; j < width; j += lanes) {
        const f8 d = load(s.d_modulated + at + j);
        store(d_scale + j, fma(d, load(s.normal + at + j), load(d_scale + j)));
        add_to(d_shift + j, d);
      }
      if (!s.branch) continue;
      differentiate_gate_row(width, s.d_sum + at, s.branch + at, s.gate.of(sample), s.d_branch + at,
                             s.d_gate.of(sample), s.d_bias);
    }
  }
}

void gate_backward(const token_grid& grid, const gate_derivative& s) {
  const std::int64_t width = grid.width;
  std::fill_n(s.d_bias, width, 0.0F);
  for (std::int64_t sample = 0; sample < grid.samples; ++sample) {
    std::fill_n(s.d_gate.of(sample), width, 0.0F);
    for (std::int64_t row = sample * grid.tokens; row < (sample + 1) * grid.tokens; ++row) {
      const std::int64_t at = row * width;
      differentiate_gate_row(width, s.d_sum + at, s.branch + at, s.gate.of(sample), s.d_branch + at,
                             s.d_gate.of(sample), s.d_bias);
    }
  }
}

}  // namespace perdura::kernels
