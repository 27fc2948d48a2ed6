// The diffusion transformer with adaLN-Zero (Peebles and Xie, "Scalable diffusion models with transformers",
// 2023): patches and learned positions, a condition of sinusoidal time and label, blocks of attention and
// tanh-GELU MLP.
//
// Both passes are written out over our own kernels, without autograd: no graph, no allocation, gradients
// straight into the flat vector, and bits that depend on no library. A row's prediction is the same in any
// batch.
#pragma once

#include <memory>
#include <vector>

#include "kernels/dit_attention.hpp"
#include "kernels/dit_norm.hpp"
#include "kernels/gemm.hpp"
#include "worker/model/buffer.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/model/dit_layout.hpp"

namespace perdura::worker {

class dit final : public denoiser {
 public:
  explicit dit(const dit_size& size);

  const std::vector<parameter>& parameters() const override { return layout_.parameters; }
  std::uint64_t parameter_count() const override { return layout_.count; }
  std::uint32_t stages() const override { return static_cast<std::uint32_t>(size_.depth) + 2; }
  image_shape image() const override { return size_.image; }
  std::int64_t classes() const override { return size_.classes; }
  void bind(const float* flat) override { flat_ = flat; }
  void set_listener(stage_listener* listener) override { listener_ = listener; }
  void initialise(std::uint64_t seed, float* flat) const override;
  double loss_gradient(const float* noisy, const float* time, const std::int64_t* label, const float* target,
                       std::int64_t batch, float* gradient) override;
  at::Tensor forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) override;

 private:
  // What a seam leaves for the way back.
  struct normalised {
    buffer normal, reciprocal, modulated;
  };
  struct block_values {
    buffer modulation;  // [batch, 6 width]
    normalised attention_input, mlp_input;
    buffer qkv, weights, attended, attention_out;
    buffer expanded, activated, mlp_out;
  };
  struct values {
    buffer patches, stream;
    buffer time_features, time_hidden, time_activated, condition, condition_activated;
    std::vector<block_values> blocks;
    buffer head_modulation;
    normalised head_input;
    buffer predicted;  // in patches
    buffer scratch;
  };
  struct derivatives {
    buffer stream, branch, attended, qkv, hidden, predicted;
    std::vector<buffer> modulation;
    buffer head_modulation, condition, time_hidden;
    float* flat = nullptr;  // the caller's gradient
  };

  // A pass's inputs.
  struct rows {
    const float* noisy;
    const float* time;
    const std::int64_t* label;
    std::int64_t batch;
  };

  void reserve(std::int64_t batch, bool derivatives);

  void run_forward(const rows& in);
  void embed(const rows& in);
  void run_block(std::int64_t index);
  void run_head();
  // `modulation` points at a shift, with the scale behind it; the branch and its gate are those of the part
  // before.
  void run_seam(const float* branch, const float* gate, const float* modulation, std::int64_t stride,
                normalised& to);

  double differentiate_loss(const float* target);
  void differentiate_head();
  void differentiate_block(std::int64_t index);
  void differentiate_embedding();
  void differentiate_condition(const std::int64_t* label);
  // Block `index`'s MLP joins the stream in the seam of the stage behind it.
  void differentiate_mlp_seam(std::int64_t index, const normalised& behind, const float* modulation,
                              float* d_modulation, std::int64_t stride, bool sum_is_used);

  void apply(const linear& l, std::int64_t rows, const float* x, float* y);
  void differentiate_weight(const linear& l, std::int64_t rows, const float* x, const float* d_y);
  void differentiate_bias(const linear& l, std::int64_t rows, const float* d_y);
  void differentiate_input(const linear& l, std::int64_t rows, const float* d_y, float* d_x,
                           kernels::gemm_start start = kernels::gemm_start::zero);
  void enter(std::int64_t stage) const;
  void leave(std::int64_t stage) const;

  kernels::token_grid grid() const { return {batch_, size_.tokens(), size_.width}; }
  kernels::attention_size attention() const {
    return {batch_, size_.tokens(), size_.heads, size_.width / size_.heads};
  }

  dit_size size_;
  dit_layout layout_;
  const float* flat_ = nullptr;
  stage_listener* listener_ = nullptr;
  std::int64_t batch_ = 0;
  values v_;
  derivatives d_;
};

}  // namespace perdura::worker
