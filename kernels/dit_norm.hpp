// The seam between two branches of a transformer block, in one pass: gated residual sum, layer norm without
// parameters, modulation by the condition (adaLN; Peebles and Xie, "Scalable diffusion models with
// transformers").
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdura::kernels {

// Rows of `width` values, a multiple of 8; `tokens` rows a sample.
struct token_grid {
  std::int64_t samples, tokens, width;
  std::int64_t rows() const { return samples * tokens; }
  std::int64_t count() const { return rows() * width; }
};

// One vector of `width` a sample, each `stride` after the last: a part of the modulation's rows.
template <class Float>
struct sample_vectors {
  Float* data = nullptr;
  std::ptrdiff_t stride = 0;
  Float* of(std::int64_t sample) const { return data + sample * stride; }
};

// sum = stream + gate * branch; normal = (sum - mean) / sqrt(variance + 1e-6), reciprocal = 1 / that root;
// modulated = normal * (1 + scale) + shift. Without a branch sum is stream, and is not written.
struct seam {
  const float* stream;
  const float* branch;
  sample_vectors<const float> gate, scale, shift;
  float* sum;  // may be stream
  float* normal;
  float* reciprocal;  // one a row
  float* modulated;
};
void seam_forward(const token_grid& grid, const seam& s);

// With d_sum the derivative by `sum` of what lies behind (null: nothing does), d_modulated that by
// `modulated`: writes d_sum (the whole derivative, which is d_stream too), d_branch, d_gate, d_scale,
// d_shift, and d_bias, the sum of d_branch over all rows. Without a branch only d_sum, d_scale and d_shift
// are written.
struct seam_derivative {
  const float* d_modulated;
  const float* normal;
  const float* reciprocal;
  sample_vectors<const float> scale, gate;
  const float* branch;
  bool sum_is_used;  // d_sum holds a derivative already
  float* d_sum;
  float* d_branch;  // may be d_modulated
  sample_vectors<float> d_gate, d_scale, d_shift;
  float* d_bias;
};
void seam_backward(const token_grid& grid, const seam_derivative& s);

// The gated branch's part of that alone, given the whole d_sum: a seam between two stages is differentiated
// in two parts, each in its own stage.
struct gate_derivative {
  const float* d_sum;
  const float* branch;
  sample_vectors<const float> gate;
  float* d_branch;
  sample_vectors<float> d_gate;
  float* d_bias;
};
void gate_backward(const token_grid& grid, const gate_derivative& s);

}  // namespace perdura::kernels
