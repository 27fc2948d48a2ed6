// Where each parameter of a DiT lies in the flat vector: stage by stage, in the order in which a pass reads
// them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "worker/model/denoiser.hpp"

namespace perdura::worker {

struct dit_size {
  image_shape image;
  std::int64_t classes, width, depth, heads, patch, hidden;
  std::int64_t tokens() const { return image.height / patch * (image.width / patch); }
  std::int64_t features() const { return image.channels * patch * patch; }  // values of a patch
};

// y = x weight^T + bias; weight [outputs, inputs], as PyTorch has it.
struct linear {
  std::uint64_t weight, bias;
  std::int64_t inputs, outputs;
};

struct dit_block {
  linear condition;  // to six vectors: shift, scale and gate of the attention, then of the MLP
  linear qkv, out;
  linear expand, contract;
};

struct dit_layout {
  linear patch;
  std::uint64_t position, label;
  linear time_in, time_out;
  std::vector<dit_block> blocks;
  linear head_condition;  // to shift and scale
  linear head;
  std::vector<parameter> parameters;
  std::uint64_t count = 0;
};

// Errors: sizes that do not fit each other, by the field of the job file.
result<dit_size> dit_size_of(const model_config& model, const data_shape& data);
dit_layout make_dit_layout(const dit_size& size);

}  // namespace perdura::worker
