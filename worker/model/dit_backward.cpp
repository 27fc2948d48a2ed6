#include <algorithm>

#include "kernels/dit_pointwise.hpp"
#include "worker/model/dit.hpp"
#include "worker/model/patches.hpp"

namespace perdura::worker {

using kernels::gemm;
using kernels::gemm_start;
using kernels::row_major;
using kernels::transposed;

void dit::differentiate_weight(const linear& l, std::int64_t rows, const float* x, const float* d_y) {
  gemm({l.outputs, l.inputs, rows}, transposed(d_y, l.outputs), row_major(x, l.inputs), d_.flat + l.weight,
       l.inputs, gemm_start::zero, nullptr, v_.scratch);
}

void dit::differentiate_bias(const linear& l, std::int64_t rows, const float* d_y) {
  kernels::column_sums(rows, l.outputs, d_y, d_.flat + l.bias);
}

void dit::differentiate_input(const linear& l, std::int64_t rows, const float* d_y, float* d_x,
                              gemm_start start) {
  gemm({rows, l.inputs, l.outputs}, row_major(d_y, l.outputs), row_major(flat_ + l.weight, l.inputs), d_x,
       l.inputs, start, nullptr, v_.scratch);
}

double dit::differentiate_loss(const float* target) {
  const std::int64_t count = size_.image.count();
  const float scale = 2.0F / static_cast<float>(count);
  cut_patches(size_, batch_, target, d_.predicted);
  double sum = 0;
  for (std::int64_t sample = 0; sample < batch_; ++sample) {
    double squares = 0;
    for (std::int64_t i = sample * count; i < (sample + 1) * count; ++i) {
      const float difference = v_.predicted[i] - d_.predicted[i];
      squares += static_cast<double>(difference) * static_cast<double>(difference);
      d_.predicted[i] = scale * difference;
    }
    sum += squares / static_cast<double>(count);
  }
  return sum;
}

void dit::differentiate_mlp_seam(std::int64_t index, const normalised& behind, const float* modulation,
                                 float* d_modulation, std::int64_t stride, bool sum_is_used) {
  const std::int64_t d = size_.width;
  kernels::seam_derivative s{};
  s.d_modulated = d_.branch;
  s.normal = behind.normal;
  s.reciprocal = behind.reciprocal;
  s.scale = {modulation + d, stride};
  s.d_scale = {d_modulation + d, stride};
  s.d_shift = {d_modulation, stride};
  s.sum_is_used = sum_is_used;
  s.d_sum = d_.stream;
  if (index >= 0) {
    const auto i = static_cast<std::size_t>(index);
    s.branch = v_.blocks[i].mlp_out;
    s.gate = {v_.blocks[i].modulation + 5 * d, 6 * d};
    s.d_gate = {d_.modulation[i] + 5 * d, 6 * d};
    s.d_branch = d_.branch;
    s.d_bias = d_.flat + layout_.blocks[i].contract.bias;
  }
  kernels::seam_backward(grid(), s);
}

void dit::differentiate_head() {
  const std::int64_t d = size_.width, rows = batch_ * size_.tokens();
  differentiate_weight(layout_.head, rows, v_.head_input.modulated, d_.predicted);
  differentiate_bias(layout_.head, rows, d_.predicted);
  differentiate_input(layout_.head, rows, d_.predicted, d_.branch);
  differentiate_mlp_seam(size_.depth - 1, v_.head_input, v_.head_modulation, d_.head_modulation, 2 * d,
                         false);
  differentiate_weight(layout_.head_condition, batch_, v_.condition_activated, d_.head_modulation);
  differentiate_bias(layout_.head_condition, batch_, d_.head_modulation);
  differentiate_input(layout_.head_condition, batch_, d_.head_modulation, d_.condition);
}

void dit::differentiate_block(std::int64_t index) {
  const std::int64_t d = size_.width, rows = batch_ * size_.tokens();
  const dit_block& l = layout_.blocks[static_cast<std::size_t>(index)];
  block_values& v = v_.blocks[static_cast<std::size_t>(index)];
  float* d_modulation = d_.modulation[static_cast<std::size_t>(index)];

  differentiate_weight(l.contract, rows, v.activated, d_.branch);
  differentiate_input(l.contract, rows, d_.branch, d_.hidden);
  kernels::gelu_backward(rows, size_.hidden, v.expanded, d_.hidden, d_.hidden, d_.flat + l.expand.bias);
  differentiate_weight(l.expand, rows, v.mlp_input.modulated, d_.hidden);
  differentiate_input(l.expand, rows, d_.hidden, d_.branch);

  kernels::seam_backward(grid(), {.d_modulated = d_.branch,
                                  .normal = v.mlp_input.normal,
                                  .reciprocal = v.mlp_input.reciprocal,
                                  .scale = {v.modulation + 4 * d, 6 * d},
                                  .gate = {v.modulation + 2 * d, 6 * d},
                                  .branch = v.attention_out,
                                  .sum_is_used = true,
                                  .d_sum = d_.stream,
                                  .d_branch = d_.branch,
                                  .d_gate = {d_modulation + 2 * d, 6 * d},
                                  .d_scale = {d_modulation + 4 * d, 6 * d},
                                  .d_shift = {d_modulation + 3 * d, 6 * d},
                                  .d_bias = d_.flat + l.out.bias});
  differentiate_weight(l.out, rows, v.attended, d_.branch);
  differentiate_input(l.out, rows, d_.branch, d_.attended);
  kernels::attention_backward(attention(), v.qkv, v.weights, d_.attended, d_.qkv, v_.scratch);
  differentiate_weight(l.qkv, rows, v.attention_input.modulated, d_.qkv);
  differentiate_bias(l.qkv, rows, d_.qkv);
  differentiate_input(l.qkv, rows, d_.qkv, d_.branch);

  differentiate_mlp_seam(index - 1, v.attention_input, v.modulation, d_modulation, 6 * d, true);
  differentiate_weight(l.condition, batch_, v_.condition_activated, d_modulation);
  differentiate_bias(l.condition, batch_, d_modulation);
  differentiate_input(l.condition, batch_, d_modulation, d_.condition, gemm_start::result);
}

void dit::differentiate_embedding() {
  const std::int64_t d = size_.width, tokens = size_.tokens(), rows = batch_ * tokens;
  differentiate_weight(layout_.patch, rows, v_.patches, d_.stream);
  // The sum over samples of each token's derivative, then over tokens: the bias.
  kernels::column_sums(batch_, tokens * d, d_.stream, d_.flat + layout_.position);
  kernels::column_sums(tokens, d, d_.flat + layout_.position, d_.flat + layout_.patch.bias);
}

void dit::differentiate_condition(const std::int64_t* label) {
  const std::int64_t d = size_.width;
  kernels::silu_backward(batch_ * d, v_.condition, d_.condition, d_.condition);
  float* d_label = d_.flat + layout_.label;
  std::fill_n(d_label, (size_.classes + 1) * d, 0.0F);
  for (std::int64_t i = 0; i < batch_; ++i) {
    for (std::int64_t j = 0; j < d; ++j) d_label[label[i] * d + j] += d_.condition[i * d + j];
  }
  differentiate_weight(layout_.time_out, batch_, v_.time_activated, d_.condition);
  differentiate_bias(layout_.time_out, batch_, d_.condition);
  differentiate_input(layout_.time_out, batch_, d_.condition, d_.time_hidden);
  kernels::silu_backward(batch_ * d, v_.time_hidden, d_.time_hidden, d_.time_hidden);
  differentiate_weight(layout_.time_in, batch_, v_.time_features, d_.time_hidden);
  differentiate_bias(layout_.time_in, batch_, d_.time_hidden);
}

double dit::loss_gradient(const float* noisy, const float* time, const std::int64_t* label,
                          const float* target, std::int64_t batch, float* gradient) {
  PERDURA_CHECK(flat_ != nullptr && batch > 0, "a denoiser is bound before it is asked for a gradient");
  reserve(batch, true);
  d_.flat = gradient;
  run_forward({noisy, time, label, batch});
  const double loss = differentiate_loss(target);
  enter(size_.depth + 1);
  differentiate_head();
  leave(size_.depth + 1);
  for (std::int64_t i = size_.depth; i-- > 0;) {
    enter(i + 1);
    differentiate_block(i);
    leave(i + 1);
  }
  enter(0);
  differentiate_embedding();
  differentiate_condition(label);
  leave(0);
  return loss;
}

}  // namespace perdura::worker
