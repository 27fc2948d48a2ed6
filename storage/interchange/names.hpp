// What the parameters are called outside: which tensors a file has for a model, and of which parts of the
// flat parameter vector each is put together.
//
// `plain`: our names and shapes, in one file.
// `diffusers`: those of its DiTTransformer2DModel. All of our DiT has a counterpart there, but:
//   - positions are learned; diffusers computes fixed ones. They are "pos_embed.pos_embed" [1, tokens,
//   width],
//     which its plain class leaves aside with a warning: perdura_dit.py, beside the weights, loads them;
//   - time frequencies are 10000^(-i/128), without parameters; diffusers has -i/127 (perdura_dit.py, again);
//   - every block there has its own copy of the time and label embedding. Ours is one: it is written to each,
//     and all copies must be equal to be read;
//   - q, k and v are apart there; the last layer's outputs are ordered row, column, channel of a patch, ours
//     channel, row, column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"
#include "storage/manifest.hpp"

namespace perdura::interchange {

enum class format { diffusers, plain };

// Elements [first, first + count) of the flat parameter vector.
struct piece {
  std::uint64_t first{};
  std::uint64_t count{};
};

struct outer_tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::vector<piece> pieces;  // one behind the other, the tensor's elements in row-major order
};

// A DiT as its job file and its tensors describe it.
struct dit_shape {
  std::uint64_t width{}, depth{}, heads{}, patch{};
  std::uint64_t channels{}, side{}, classes{};  // images are square, without the null class
  std::uint64_t tokens() const { return (side / patch) * (side / patch); }
};

// Errors: invalid_argument where the model has no counterpart in diffusers, or its tensors are not a DiT's.
result<dit_shape> dit_shape_of(const model_config& model, const std::vector<storage::tensor_entry>& tensors);

std::vector<outer_tensor> plain_tensors(const std::vector<storage::tensor_entry>& tensors);
// Errors: as dit_shape_of.
result<std::vector<outer_tensor>> diffusers_tensors(const dit_shape& shape,
                                                    const std::vector<storage::tensor_entry>& tensors);

// transformer/config.json.
std::string diffusers_config(const dit_shape& shape);
// transformer/perdura_dit.py.
extern const char* const dit_loader;

inline constexpr const char* positions_name = "pos_embed.pos_embed";
// What diffusers adds where a file brings no positions: [tokens, width], sines and cosines of row and column.
std::vector<float> fixed_positions(const dit_shape& shape);

}  // namespace perdura::interchange
