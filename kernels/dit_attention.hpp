// Softmax attention over all tokens of a sample, head by head.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm.hpp"

namespace perdura::kernels {

struct attention_size {
  std::int64_t samples, tokens, heads, head_width;        // head_width a multiple of 8
  operand_precision precision = operand_precision::fp32;  // of the products
  std::int64_t width() const { return heads * head_width; }
  // Weights of one query, with zeros up to a whole vector.
  std::int64_t padded_tokens() const { return (tokens + 7) / 8 * 8; }
  std::int64_t weights() const { return samples * heads * tokens * padded_tokens(); }
};

std::size_t attention_scratch(const attention_size& size);

// qkv: [samples * tokens, 3 * width], queries, keys and values side by side, each head by head; weights (kept
// for the way back): [samples, heads, tokens, padded_tokens]; out: [samples * tokens, width].
void attention_forward(const attention_size& size, const float* qkv, float* weights, float* out,
                       float* scratch);
void attention_backward(const attention_size& size, const float* qkv, const float* weights,
                        const float* d_out, float* d_qkv, float* scratch);

}  // namespace perdura::kernels
