// The DiT of worker/model once more, as plain ATen in double precision, to be differentiated by LibTorch's
// autograd: what the hand-written passes are compared with.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/silu.h>

#include <cmath>
#include <map>
#include <string>

#include "worker/model/dit_layout.hpp"

namespace perdura::worker::reference {

using weights = std::map<std::string, at::Tensor>;

inline at::Tensor linear_of(const weights& w, const std::string& name, const at::Tensor& x) {
  return at::linear(x, w.at(name + ".weight"), w.at(name + ".bias"));
}

inline at::Tensor normed(const at::Tensor& x, const at::Tensor& shift, const at::Tensor& scale) {
  return at::layer_norm(x, {x.size(-1)}, {}, {}, 1e-6) * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1);
}

inline at::Tensor block(const dit_size& size, const weights& w, const std::string& name, const at::Tensor& x,
                        const at::Tensor& condition) {
  const auto a = linear_of(w, name + "condition", condition).chunk(6, 1);
  const std::int64_t batch = x.size(0), tokens = x.size(1), head = size.width / size.heads;
  const at::Tensor qkv = linear_of(w, name + "qkv", normed(x, a[0], a[1]))
                             .view({batch, tokens, 3, size.heads, head})
                             .permute({2, 0, 3, 1, 4});
  const at::Tensor scores = qkv[0].matmul(qkv[1].transpose(-1, -2)) / std::sqrt(static_cast<double>(head));
  const at::Tensor attended =
      scores.softmax(-1).matmul(qkv[2]).transpose(1, 2).reshape({batch, tokens, size.width});
  const at::Tensor middle = x + a[2].unsqueeze(1) * linear_of(w, name + "out", attended);
  const at::Tensor hidden = at::gelu(linear_of(w, name + "mlp.0", normed(middle, a[3], a[4])), "tanh");
  return middle + a[5].unsqueeze(1) * linear_of(w, name + "mlp.2", hidden);
}

inline at::Tensor forward(const dit_size& size, const weights& w, const at::Tensor& noisy,
                          const at::Tensor& time, const at::Tensor& label) {
  const std::int64_t batch = noisy.size(0), p = size.patch, c = size.image.channels;
  const std::int64_t down = size.image.height / p, across = size.image.width / p;
  const at::Tensor patches = noisy.view({batch, c, down, p, across, p})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({batch, down * across, c * p * p});
  const at::Tensor frequency = at::exp(at::arange(128, at::kDouble) * (-std::log(1e4) / 128));
  const at::Tensor angle = time.unsqueeze(1) * 1000 * frequency;
  const at::Tensor features = at::cat({angle.cos(), angle.sin()}, 1);
  const at::Tensor embedded = linear_of(w, "time.2", at::silu(linear_of(w, "time.0", features)));
  const at::Tensor condition = at::silu(embedded + w.at("label.weight").index_select(0, label));
  at::Tensor x = linear_of(w, "patch", patches) + w.at("position");
  for (std::int64_t i = 0; i < size.depth; ++i)
    x = block(size, w, "blocks." + std::to_string(i) + ".", x, condition);
  const auto a = linear_of(w, "head.condition", condition).chunk(2, 1);
  return linear_of(w, "head", normed(x, a[0], a[1]))
      .view({batch, down, across, c, p, p})
      .permute({0, 3, 1, 4, 2, 5})
      .reshape(noisy.sizes());
}

}  // namespace perdura::worker::reference
