#include "kernels/dit_attention.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/gemm.hpp"
#include "kernels/simd.hpp"

namespace perdura::kernels {
namespace {

using namespace simd;

// In place: scores become the weights of one query; what lies beyond the tokens becomes 0.
void softmax_row(std::int64_t tokens, float scale, float* scores) {
  const std::int64_t whole = tokens / lanes * lanes;
  float largest = scores[0];
  f8 most = splat(largest);
  for (std::int64_t j = 0; j < whole; j += lanes) most = max(most, load(scores + j));
  largest = maximum(most);
  for (std::int64_t j = whole; j < tokens; ++j) largest = std::max(largest, scores[j]);
  f8 total = zero();
  for (std::int64_t j = 0; j < whole; j += lanes) {
    const f8 e = exp((load(scores + j) - splat(largest)) * splat(scale));
    store(scores + j, e);
    total = total + e;
  }
  if (whole < tokens) {
    float rest[lanes] = {};
    store(rest, exp((load(scores + whole) - splat(largest)) * splat(scale)));
    std::fill(rest + (tokens - whole), rest + lanes, 0.0F);
    store(scores + whole, load(rest));
    total = total + load(rest);
  }
  const f8 part = splat(1.0F / sum(total));
  for (std::int64_t j = 0; j < tokens; j += lanes) store(scores + j, load(scores + j) * part);
}

// In place: derivatives by the weights become those by the unscaled scores.
void softmax_row_backward(std::int64_t padded, float scale, const float* weights, float* d) {
  f8 along = zero();
  for (std::int64_t j = 0; j < padded; j += lanes) along = fma(load(weights + j), load(d + j), along);
  const f8 mean = splat(sum(along));
  for (std::int64_t j = 0; j < padded; j += lanes) {
    store(d + j, load(weights + j) * (load(d + j) - mean) * splat(scale));
  }
}

float score_scale(const attention_size& size) {
  return 1.0F / std::sqrt(static_cast<float>(size.head_width));
}

}  // namespace

std::size_t attention_scratch(const attention_size& size) {
  const std::int64_t most = std::max(size.padded_tokens(), size.head_width);
  return gemm_scratch(most, most) + static_cast<std::size_t>(size.tokens * size.padded_tokens());
}

void attention_forward(const attention_size& size, const float* qkv, float* weights, float* out,
                       float* scratch) {
  const std::int64_t n = size.tokens, padded = size.padded_tokens(), h = size.head_width,
                     width = size.width();
  const float scale = score_scale(size);
  for (std::int64_t sample = 0; sample < size.samples; ++sample) {
    for (std::int64_t head = 0; head < size.heads; ++head) {
      const float* q = qkv + sample * n * 3 * width + head * h;
      float* w = weights + (sample * size.heads + head) * n * padded;
      gemm({n, n, h}, row_major(q, 3 * width), transposed(q + width, 3 * width), w, padded, gemm_start::zero,
           nullptr, scratch, size.precision);
      for (std::int64_t i = 0; i < n; ++i) {
        std::fill(w + i * padded + n, w + (i + 1) * padded, 0.0F);
        softmax_row(n, scale, w + i * padded);
      }
      gemm({n, h, n}, row_major(w, padded), row_major(q + 2 * width, 3 * width),
           out + sample * n * width + head * h, width, gemm_start::zero, nullptr, scratch, size.precision);
    }
  }
}

void attention_backward(const attention_size& size, const float* qkv, const float* weights,
                        const float* d_out, float* d_qkv, float* scratch) {
  const std::int64_t n = size.tokens, padded = size.padded_tokens(), h = size.head_width,
                     width = size.width();
  const std::int64_t row = 3 * width;
  const float scale = score_scale(size);
  float* d_scores = scratch;
  float* products = scratch + n * padded;
  for (std::int64_t sample = 0; sample < size.samples; ++sample) {
    for (std::int64_t head = 0; head < size.heads; ++head) {
      const std::int64_t at = sample * n * row + head * h;
      const float* q = qkv + at;
      const float* w = weights + (sample * size.heads + head) * n * padded;
      const float* d_o = d_out + sample * n * width + head * h;
      float* d_q = d_qkv + at;
      const auto product = [&](const gemm_size& s, const matrix& a, const matrix& b, float* c,
                               std::ptrdiff_t c_row) {
        gemm(s, a, b, c, c_row, gemm_start::zero, nullptr, products, size.precision);
      };
      product({n, n, h}, row_major(d_o, width), transposed(q + 2 * width, row), d_scores, padded);
      for (std::int64_t i = 0; i < n; ++i) {
        std::fill(d_scores + i * padded + n, d_scores + (i + 1) * padded, 0.0F);
        softmax_row_backward(padded, scale, w + i * padded, d_scores + i * padded);
      }
      product({n, h, n}, row_major(d_scores, padded), row_major(q + width, row), d_q, row);
      product({n, h, n}, transposed(d_scores, padded), row_major(q, row), d_q + width, row);
      product({n, h, n}, transposed(w, padded), row_major(d_o, width), d_q + 2 * width, row);
    }
  }
}

}  // namespace perdura::kernels
