#include <algorithm>

#include "kernels/dit_pointwise.hpp"
#include "worker/model/dit.hpp"
#include "worker/model/patches.hpp"

namespace perdura::worker {

using kernels::gemm;
using kernels::gemm_start;
using kernels::row_major;
using kernels::transposed;

void dit::differentiate_weight(const linear& l, std::int64_t rows, const float* x, const float* d_y,
                               const gradient_part& to) {
  gemm({l.outputs, l.inputs, rows}, transposed(d_y, l.outputs), row_major(x, l.inputs), to.at(l.weight),
       l.inputs, gemm_start::zero, nullptr, w_.scratch, precision());
}

void dit::differentiate_bias(const linear& l, std::int64_t rows, const float* d_y, const gradient_part& to) {
  kernels::column_sums(rows, l.outputs, d_y, to.at(l.bias));
}

void dit::differentiate_input(const linear& l, std::int64_t rows, const float* d_y, float* d_x,
                              gemm_start start) {
  const kernels::gemm_size size{rows, l.inputs, l.outputs};
  if (flat_) {
    gemm(size, row_major(d_y, l.outputs), row_major(flat_ + l.weight, l.inputs), d_x, l.inputs, start,
         nullptr, w_.scratch);
  } else {
    gemm(size, row_major(d_y, l.outputs), row_major(half_ + l.weight, l.inputs), d_x, l.inputs, start,
         nullptr, w_.scratch);
  }
}

double dit::loss(const slot_rows& in, slot_values& values) {
  auto& slot = static_cast<dit_slot&>(values);
  const std::int64_t count = size_.image.count();
  const float scale = 2.0F / static_cast<float>(count);
  cut_patches(size_, in.batch, in.target, w_.target);
  double sum = 0;
  for (std::int64_t sample = 0; sample < in.batch; ++sample) {
    double squares = 0;
    for (std::int64_t i = sample * count; i < (sample + 1) * count; ++i) {
      const float difference = slot.predicted[i] - w_.target[i];
      squares += static_cast<double>(difference) * static_cast<double>(difference);
      slot.predicted[i] = scale * difference;
    }
    sum += squares / static_cast<double>(count);
  }
  return sum;
}

void dit::differentiate_head(dit_slot& slot, const gradient_part& to) {
  const std::int64_t d = size_.width;
  const float* d_predicted = slot.predicted;
  differentiate_weight(layout_.head, rows(), slot.head_input.modulated, d_predicted, to);
  differentiate_bias(layout_.head, rows(), d_predicted, to);
  differentiate_input(layout_.head, rows(), d_predicted, w_.d_branch);

  kernels::seam_derivative s{};
  s.d_modulated = w_.d_branch;
  s.normal = slot.head_input.normal;
  s.reciprocal = slot.head_input.reciprocal;
  s.scale = {slot.head_modulation + d, 2 * d};
  s.d_sum = slot.stream;
  s.d_scale = {w_.d_modulation + d, 2 * d};
  s.d_shift = {w_.d_modulation, 2 * d};
  kernels::seam_backward(grid(), s);
  differentiate_weight(layout_.head_condition, batch_, slot.condition_activated, w_.d_modulation, to);
  differentiate_bias(layout_.head_condition, batch_, w_.d_modulation, to);
  differentiate_input(layout_.head_condition, batch_, w_.d_modulation, slot.d_condition);
}

void dit::differentiate_block(std::int64_t index, dit_slot& slot, const gradient_part& to) {
  const std::int64_t d = size_.width;
  const auto i = static_cast<std::size_t>(index);
  const dit_block& l = layout_.blocks[i];
  const float* modulation = slot.blocks[i].modulation;
  float* d_modulation = w_.d_modulation;
  block_values& v = values_on_the_way_back(index, slot);

  kernels::gate_backward(grid(), {.d_sum = slot.stream,
                                  .branch = v.mlp_out,
                                  .gate = {modulation + 5 * d, 6 * d},
                                  .d_branch = w_.d_branch,
                                  .d_gate = {d_modulation + 5 * d, 6 * d},
                                  .d_bias = to.at(l.contract.bias)});
  differentiate_mlp(l, v, to);
  kernels::seam_backward(grid(), {.d_modulated = w_.d_branch,
                                  .normal = v.mlp_input.normal,
                                  .reciprocal = v.mlp_input.reciprocal,
                                  .scale = {modulation + 4 * d, 6 * d},
                                  .gate = {modulation + 2 * d, 6 * d},
                                  .branch = v.attention_out,
                                  .sum_is_used = true,
                                  .d_sum = slot.stream,
                                  .d_branch = w_.d_branch,
                                  .d_gate = {d_modulation + 2 * d, 6 * d},
                                  .d_scale = {d_modulation + 4 * d, 6 * d},
                                  .d_shift = {d_modulation + 3 * d, 6 * d},
                                  .d_bias = to.at(l.out.bias)});
  differentiate_attention(l, v, to);
  kernels::seam_backward(grid(), {.d_modulated = w_.d_branch,
                                  .normal = v.attention_input.normal,
                                  .reciprocal = v.attention_input.reciprocal,
                                  .scale = {modulation + d, 6 * d},
                                  .gate = {},
                                  .branch = nullptr,
                                  .sum_is_used = true,
                                  .d_sum = slot.stream,
                                  .d_branch = nullptr,
                                  .d_gate = {},
                                  .d_scale = {d_modulation + d, 6 * d},
                                  .d_shift = {d_modulation, 6 * d},
                                  .d_bias = nullptr});
  differentiate_weight(l.condition, batch_, slot.condition_activated, d_modulation, to);
  differentiate_bias(l.condition, batch_, d_modulation, to);
  differentiate_input(l.condition, batch_, d_modulation, slot.d_condition, gemm_start::result);
}

void dit::differentiate_mlp(const dit_block& l, block_values& v, const gradient_part& to) {
  differentiate_weight(l.contract, rows(), v.activated, w_.d_branch, to);
  differentiate_input(l.contract, rows(), w_.d_branch, w_.d_hidden);
  kernels::gelu_backward(rows(), size_.hidden, v.expanded, w_.d_hidden, w_.d_hidden, to.at(l.expand.bias));
  differentiate_weight(l.expand, rows(), v.mlp_input.modulated, w_.d_hidden, to);
  differentiate_input(l.expand, rows(), w_.d_hidden, w_.d_branch);
}

void dit::differentiate_attention(const dit_block& l, block_values& v, const gradient_part& to) {
  differentiate_weight(l.out, rows(), v.attended, w_.d_branch, to);
  differentiate_input(l.out, rows(), w_.d_branch, w_.d_attended);
  kernels::attention_backward(attention(), v.qkv, v.weights, w_.d_attended, w_.d_qkv, w_.scratch);
  differentiate_weight(l.qkv, rows(), v.attention_input.modulated, w_.d_qkv, to);
  differentiate_bias(l.qkv, rows(), w_.d_qkv, to);
  differentiate_input(l.qkv, rows(), w_.d_qkv, w_.d_branch);
}

void dit::differentiate_embedding(dit_slot& slot, const gradient_part& to) {
  const std::int64_t d = size_.width, tokens = size_.tokens();
  differentiate_weight(layout_.patch, rows(), slot.patches, slot.stream, to);
  // The sum over samples of each token's derivative, then over tokens: the bias.
  kernels::column_sums(batch_, tokens * d, slot.stream, to.at(layout_.position));
  kernels::column_sums(tokens, d, to.at(layout_.position), to.at(layout_.patch.bias));
}

void dit::differentiate_condition(const std::int64_t* label, dit_slot& slot, const gradient_part& to) {
  const std::int64_t d = size_.width;
  float* d_condition = slot.d_condition;
  kernels::silu_backward(batch_ * d, slot.condition, d_condition, d_condition);
  float* d_label = to.at(layout_.label);
  std::fill_n(d_label, (size_.classes + 1) * d, 0.0F);
  for (std::int64_t i = 0; i < batch_; ++i) {
    for (std::int64_t j = 0; j < d; ++j) d_label[label[i] * d + j] += d_condition[i * d + j];
  }
  differentiate_weight(layout_.time_out, batch_, slot.time_activated, d_condition, to);
  differentiate_bias(layout_.time_out, batch_, d_condition, to);
  differentiate_input(layout_.time_out, batch_, d_condition, w_.d_time_hidden);
  kernels::silu_backward(batch_ * d, slot.time_hidden, w_.d_time_hidden, w_.d_time_hidden);
  differentiate_weight(layout_.time_in, batch_, slot.time_features, w_.d_time_hidden, to);
  differentiate_bias(layout_.time_in, batch_, w_.d_time_hidden, to);
}

void dit::backward_stage(std::uint32_t stage, const slot_rows& in, slot_values& values, float* gradient) {
  auto& slot = static_cast<dit_slot&>(values);
  batch_ = in.batch;
  const gradient_part to{gradient, spans_[stage].first};
  if (stage == 0) {
    differentiate_embedding(slot, to);
    differentiate_condition(in.label, slot, to);
  } else if (stage <= size_.depth) {
    differentiate_block(std::int64_t{stage} - 1, slot, to);
  } else {
    differentiate_head(slot, to);
  }
}

}  // namespace perdura::worker
