// The memory of a DiT's passes: what a slot keeps, and what all slots share.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/dit_attention.hpp"
#include "kernels/dit_pointwise.hpp"
#include "worker/model/buffer.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/model/dit_layout.hpp"

namespace perdura::worker {

// What a seam leaves for the way back.
struct normalised {
  buffer normal, reciprocal, modulated;
};

// All that a block computes.
struct block_values {
  normalised attention_input, mlp_input;
  buffer qkv, weights, attended, attention_out;
  buffer expanded, activated, mlp_out;
};

// What of a block outlives its forward pass.
enum class block_storage : std::uint8_t {
  all,
  input,   // it is run again on the way back
  nothing  // there is no way back
};

struct kept_block {
  buffer modulation;    // [batch, 6 width]
  block_values values;  // block_storage::all
  buffer input;         // block_storage::input: the stream behind the seam that begins the block
};

struct dit_slot final : slot_values {
  block_storage storage = block_storage::all;
  buffer patches;
  buffer stream;  // its derivative on the way back
  buffer time_features, time_hidden, time_activated, condition, condition_activated;
  std::vector<kept_block> blocks;
  buffer mlp_out;  // of the last block that ran, where its values are not kept
  buffer head_modulation;
  normalised head_input;
  buffer predicted;  // in patches; its derivative on the way back
  buffer d_condition;
};

struct dit_workspace {
  buffer scratch;  // of the products
  buffer bias, position, label;
  block_values block;  // of a block whose values are not kept
  buffer d_branch, d_attended, d_qkv, d_hidden, d_modulation, d_time_hidden, target;
};

// f(buffer, number of floats) for all buffers that a slot of `batch` samples needs.
template <class F>
void for_each_buffer(const dit_size& size, std::int64_t batch, block_values& v, F f) {
  const std::int64_t rows = batch * size.tokens(), wide = rows * size.width;
  const kernels::attention_size attention{batch, size.tokens(), size.heads, size.width / size.heads};
  for (normalised* n : {&v.attention_input, &v.mlp_input}) {
    f(n->normal, wide);
    f(n->reciprocal, rows);
    f(n->modulated, wide);
  }
  f(v.qkv, 3 * wide);
  f(v.weights, attention.weights());
  for (buffer* b : {&v.attended, &v.attention_out, &v.mlp_out}) f(*b, wide);
  for (buffer* b : {&v.expanded, &v.activated}) f(*b, rows * size.hidden);
}

template <class F>
void for_each_buffer(const dit_size& size, std::int64_t batch, dit_slot& s, F f) {
  const std::int64_t rows = batch * size.tokens(), d = size.width, wide = rows * d;
  for (buffer* b : {&s.patches, &s.predicted}) f(*b, rows * size.features());
  f(s.stream, wide);
  f(s.time_features, batch * kernels::time_features_count);
  for (buffer* b : {&s.time_hidden, &s.time_activated, &s.condition, &s.condition_activated, &s.d_condition})
    f(*b, batch * d);
  for (kept_block& b : s.blocks) {
    f(b.modulation, batch * 6 * d);
    if (s.storage == block_storage::all) for_each_buffer(size, batch, b.values, f);
    if (s.storage == block_storage::input) f(b.input, wide);
  }
  if (s.storage != block_storage::all) f(s.mlp_out, wide);
  f(s.head_modulation, batch * 2 * d);
  f(s.head_input.normal, wide);
  f(s.head_input.reciprocal, rows);
  f(s.head_input.modulated, wide);
}

template <class F>
void for_each_buffer(const dit_size& size, std::int64_t batch, block_storage storage, dit_workspace& w, F f) {
  const std::int64_t rows = batch * size.tokens(), d = size.width, wide = rows * d;
  const std::int64_t widest = std::max({6 * d, size.hidden, size.features(), kernels::time_features_count});
  const kernels::attention_size attention{batch, size.tokens(), size.heads, d / size.heads};
  f(w.scratch, static_cast<std::int64_t>(std::max(kernels::gemm_scratch(widest, std::max(rows, widest)),
                                                  kernels::attention_scratch(attention))));
  f(w.bias, widest);
  f(w.position, size.tokens() * d);
  f(w.label, d);
  if (storage != block_storage::all) for_each_buffer(size, batch, w.block, f);
  if (storage == block_storage::nothing) return;
  for (buffer* b : {&w.d_branch, &w.d_attended}) f(*b, wide);
  f(w.d_qkv, 3 * wide);
  f(w.d_hidden, rows * size.hidden);
  f(w.d_modulation, batch * 6 * d);
  f(w.d_time_hidden, batch * d);
  f(w.target, rows * size.features());
}

}  // namespace perdura::worker
