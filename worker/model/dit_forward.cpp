#include <algorithm>

#include "kernels/dit_pointwise.hpp"
#include "worker/model/dit.hpp"
#include "worker/model/patches.hpp"

namespace perdura::worker {

using kernels::gemm;
using kernels::gemm_start;
using kernels::row_major;
using kernels::transposed;

const float* dit::vector(std::uint64_t first, std::int64_t count, buffer& expanded) const {
  if (flat_) return flat_ + first;
  std::transform(half_ + first, half_ + first + count, expanded.data(), kernels::float_of);
  return expanded;
}

void dit::apply(const linear& l, std::int64_t rows, const float* x, float* y, gemm_start start) {
  const float* bias = start == gemm_start::bias ? vector(l.bias, l.outputs, w_.bias) : nullptr;
  const kernels::gemm_size size{rows, l.outputs, l.inputs};
  if (flat_) {
    gemm(size, row_major(x, l.inputs), transposed(flat_ + l.weight, l.inputs), y, l.outputs, start, bias,
         w_.scratch);
  } else {
    gemm(size, row_major(x, l.inputs), transposed(half_ + l.weight, l.inputs), y, l.outputs, start, bias,
         w_.scratch);
  }
}

void dit::embed(const slot_rows& in, dit_slot& slot) {
  const std::int64_t d = size_.width, tokens = size_.tokens(), batch = in.batch;
  cut_patches(size_, batch, in.noisy, slot.patches);
  const float* bias = vector(layout_.patch.bias, d, w_.bias);
  const float* positions = vector(layout_.position, tokens * d, w_.position);
  for (std::int64_t row = 0; row < batch * tokens; ++row) {
    const float* position = positions + row % tokens * d;
    for (std::int64_t j = 0; j < d; ++j) slot.stream[row * d + j] = bias[j] + position[j];
  }
  apply(layout_.patch, batch * tokens, slot.patches, slot.stream, gemm_start::result);

  for (std::int64_t i = 0; i < batch; ++i) {
    kernels::time_features(in.time[i], slot.time_features + i * kernels::time_features_count);
  }
  apply(layout_.time_in, batch, slot.time_features, slot.time_hidden);
  kernels::silu(batch * d, slot.time_hidden, slot.time_activated);
  apply(layout_.time_out, batch, slot.time_activated, slot.condition);
  for (std::int64_t i = 0; i < batch; ++i) {
    const float* label = vector(layout_.label + static_cast<std::uint64_t>(in.label[i] * d), d, w_.label);
    for (std::int64_t j = 0; j < d; ++j) slot.condition[i * d + j] += label[j];
  }
  kernels::silu(batch * d, slot.condition, slot.condition_activated);
}

// `modulation` points at a shift, with the scale behind it.
kernels::seam dit::seam_into(normalised& to, const float* modulation, std::int64_t stride) const {
  kernels::seam s{};
  s.scale = {modulation + size_.width, stride};
  s.shift = {modulation, stride};
  s.normal = to.normal;
  s.reciprocal = to.reciprocal;
  s.modulated = to.modulated;
  return s;
}

// The MLP of block `index` joins the stream in the seam of the stage behind it.
void dit::join_mlp(std::int64_t index, dit_slot& slot, kernels::seam& s) const {
  if (index < 0) return;
  kept_block& before = slot.blocks[static_cast<std::size_t>(index)];
  s.branch = slot.storage == block_storage::all ? before.values.mlp_out : slot.mlp_out;
  s.gate = {before.modulation + 5 * size_.width, 6 * size_.width};
}

void dit::run_branches(const dit_block& l, kept_block& kept, const float* input, float* sum, block_values& v,
                       float* mlp_out) {
  const std::int64_t d = size_.width;
  apply(l.qkv, rows(), v.attention_input.modulated, v.qkv);
  kernels::attention_forward(attention(), v.qkv, v.weights, v.attended, w_.scratch);
  apply(l.out, rows(), v.attended, v.attention_out);

  kernels::seam s = seam_into(v.mlp_input, kept.modulation + 3 * d, 6 * d);
  s.stream = input;
  s.branch = v.attention_out;
  s.gate = {kept.modulation + 2 * d, 6 * d};
  s.sum = sum;
  kernels::seam_forward(grid(), s);
  apply(l.expand, rows(), v.mlp_input.modulated, v.expanded);
  kernels::gelu(rows() * size_.hidden, v.expanded, v.activated);
  apply(l.contract, rows(), v.activated, mlp_out);
}

void dit::run_block(std::int64_t index, dit_slot& slot) {
  const auto i = static_cast<std::size_t>(index);
  const dit_block& l = layout_.blocks[i];
  kept_block& kept = slot.blocks[i];
  block_values& v = slot.storage == block_storage::all ? kept.values : w_.block;
  float* input = slot.storage == block_storage::input ? kept.input : slot.stream;
  apply(l.condition, batch_, slot.condition_activated, kept.modulation);

  kernels::seam s = seam_into(v.attention_input, kept.modulation, 6 * size_.width);
  s.stream = slot.stream;
  s.sum = input;
  join_mlp(index - 1, slot, s);
  kernels::seam_forward(grid(), s);
  if (!s.branch && input != slot.stream.data()) std::copy_n(slot.stream.data(), grid().count(), input);
  run_branches(l, kept, input, slot.stream, v, slot.storage == block_storage::all ? v.mlp_out : slot.mlp_out);
}

// The input is the sum of its seam already, which gives the same normal values without a branch.
block_values& dit::values_on_the_way_back(std::int64_t index, dit_slot& slot) {
  const auto i = static_cast<std::size_t>(index);
  kept_block& kept = slot.blocks[i];
  if (slot.storage == block_storage::all) return kept.values;
  block_values& v = w_.block;
  kernels::seam s = seam_into(v.attention_input, kept.modulation, 6 * size_.width);
  s.stream = kept.input;
  kernels::seam_forward(grid(), s);
  run_branches(layout_.blocks[i], kept, kept.input, w_.d_branch, v, v.mlp_out);
  return v;
}

void dit::run_head(dit_slot& slot) {
  apply(layout_.head_condition, batch_, slot.condition_activated, slot.head_modulation);
  kernels::seam s = seam_into(slot.head_input, slot.head_modulation, 2 * size_.width);
  s.stream = slot.stream;
  s.sum = slot.stream;
  join_mlp(size_.depth - 1, slot, s);
  kernels::seam_forward(grid(), s);
  apply(layout_.head, rows(), slot.head_input.modulated, slot.predicted);
}

void dit::run_stage(std::int64_t stage, const slot_rows& in, dit_slot& slot) {
  batch_ = in.batch;
  if (stage == 0)
    embed(in, slot);
  else if (stage <= size_.depth)
    run_block(stage - 1, slot);
  else
    run_head(slot);
}

}  // namespace perdura::worker
