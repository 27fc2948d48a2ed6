#include <algorithm>

#include "kernels/dit_pointwise.hpp"
#include "worker/model/dit.hpp"
#include "worker/model/patches.hpp"

namespace perdura::worker {

using kernels::gemm;
using kernels::gemm_start;
using kernels::row_major;
using kernels::transposed;

void dit::apply(const linear& l, std::int64_t rows, const float* x, float* y) {
  gemm({rows, l.outputs, l.inputs}, row_major(x, l.inputs), transposed(flat_ + l.weight, l.inputs), y,
       l.outputs, gemm_start::bias, flat_ + l.bias, v_.scratch);
}

void dit::run_seam(const float* branch, const float* gate, const float* modulation, std::int64_t stride,
                   normalised& to) {
  const std::int64_t d = size_.width;
  kernels::seam_forward(grid(), {v_.stream,
                                 branch,
                                 {gate, 6 * d},
                                 {modulation + d, stride},
                                 {modulation, stride},
                                 v_.stream,
                                 to.normal,
                                 to.reciprocal,
                                 to.modulated});
}

void dit::embed(const rows& in) {
  const std::int64_t d = size_.width, tokens = size_.tokens();
  cut_patches(size_, in.batch, in.noisy, v_.patches);
  const float* bias = flat_ + layout_.patch.bias;
  for (std::int64_t row = 0; row < in.batch * tokens; ++row) {
    const float* position = flat_ + layout_.position + row % tokens * d;
    for (std::int64_t j = 0; j < d; ++j) v_.stream[row * d + j] = bias[j] + position[j];
  }
  const linear& patch = layout_.patch;
  gemm({in.batch * tokens, d, patch.inputs}, row_major(v_.patches, patch.inputs),
       transposed(flat_ + patch.weight, patch.inputs), v_.stream, d, gemm_start::result, nullptr, v_.scratch);

  for (std::int64_t i = 0; i < in.batch; ++i) {
    kernels::time_features(in.time[i], v_.time_features + i * kernels::time_features_count);
  }
  apply(layout_.time_in, in.batch, v_.time_features, v_.time_hidden);
  kernels::silu(in.batch * d, v_.time_hidden, v_.time_activated);
  apply(layout_.time_out, in.batch, v_.time_activated, v_.condition);
  for (std::int64_t i = 0; i < in.batch; ++i) {
    const float* label = flat_ + layout_.label + in.label[i] * d;
    for (std::int64_t j = 0; j < d; ++j) v_.condition[i * d + j] += label[j];
  }
  kernels::silu(in.batch * d, v_.condition, v_.condition_activated);
}

void dit::run_block(std::int64_t index) {
  const std::int64_t d = size_.width, rows = batch_ * size_.tokens();
  const dit_block& l = layout_.blocks[static_cast<std::size_t>(index)];
  block_values& v = v_.blocks[static_cast<std::size_t>(index)];
  const float* mlp_before = nullptr;
  const float* gate_before = nullptr;
  if (index > 0) {
    const block_values& before = v_.blocks[static_cast<std::size_t>(index - 1)];
    mlp_before = before.mlp_out;
    gate_before = before.modulation + 5 * d;
  }
  apply(l.condition, batch_, v_.condition_activated, v.modulation);

  run_seam(mlp_before, gate_before, v.modulation, 6 * d, v.attention_input);
  apply(l.qkv, rows, v.attention_input.modulated, v.qkv);
  kernels::attention_forward(attention(), v.qkv, v.weights, v.attended, v_.scratch);
  apply(l.out, rows, v.attended, v.attention_out);

  run_seam(v.attention_out, v.modulation + 2 * d, v.modulation + 3 * d, 6 * d, v.mlp_input);
  apply(l.expand, rows, v.mlp_input.modulated, v.expanded);
  kernels::gelu(rows * size_.hidden, v.expanded, v.activated);
  apply(l.contract, rows, v.activated, v.mlp_out);
}

void dit::run_head() {
  const std::int64_t d = size_.width;
  const block_values& last = v_.blocks.back();
  apply(layout_.head_condition, batch_, v_.condition_activated, v_.head_modulation);
  run_seam(last.mlp_out, last.modulation + 5 * d, v_.head_modulation, 2 * d, v_.head_input);
  apply(layout_.head, batch_ * size_.tokens(), v_.head_input.modulated, v_.predicted);
}

void dit::run_forward(const rows& in) {
  enter(0);
  embed(in);
  leave(0);
  for (std::int64_t i = 0; i < size_.depth; ++i) {
    enter(i + 1);
    run_block(i);
    leave(i + 1);
  }
  enter(size_.depth + 1);
  run_head();
  leave(size_.depth + 1);
}

}  // namespace perdura::worker
