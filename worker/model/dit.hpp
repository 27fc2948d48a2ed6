// The diffusion transformer with adaLN-Zero (Peebles and Xie, "Scalable diffusion models with transformers",
// 2023): patches and learned positions, a condition of sinusoidal time and label, blocks of attention and
// tanh-GELU MLP.
//
// Both passes are written out over our own kernels, without autograd: no graph, no allocation, gradients
// straight into the flat vector, and bits that depend on no library. A row's prediction is the same in any
// batch. With activation checkpointing a block keeps its input alone and is run again on the way back, to the
// same bits.
#pragma once

#include <memory>
#include <vector>

#include "kernels/dit_attention.hpp"
#include "kernels/dit_norm.hpp"
#include "kernels/gemm.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/model/dit_layout.hpp"
#include "worker/model/dit_values.hpp"

namespace perdura::worker {

class dit final : public denoiser {
 public:
  explicit dit(const dit_size& size, bool checkpoints_activations = false);

  const std::vector<parameter>& parameters() const override { return layout_.parameters; }
  std::uint64_t parameter_count() const override { return layout_.count; }
  std::uint32_t stages() const override { return static_cast<std::uint32_t>(size_.depth) + 2; }
  image_shape image() const override { return size_.image; }
  std::int64_t classes() const override { return size_.classes; }
  void bind(const float* flat) override;
  void bind(const kernels::bf16* flat) override;
  void initialise(std::uint64_t seed, std::uint64_t first, std::span<float> to) const override;

  std::unique_ptr<slot_values> make_slot() const override;
  void forward_stage(std::uint32_t stage, const slot_rows& rows, slot_values& values) override;
  double loss(const slot_rows& rows, slot_values& values) override;
  void backward_stage(std::uint32_t stage, const slot_rows& rows, slot_values& values,
                      float* gradient) override;
  std::uint64_t slot_bytes(std::int64_t batch) const override;
  std::uint64_t workspace_bytes(std::int64_t batch) const override;
  at::Tensor forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) override;

 private:
  // Where a stage's gradient goes: its first parameter is at `stage_first` of the flat vector.
  struct gradient_part {
    float* data;
    std::uint64_t stage_first;
    float* at(std::uint64_t parameter) const { return data + (parameter - stage_first); }
  };

  // For a slot of `batch` samples from here on.
  void begin(std::int64_t batch, dit_slot& slot, block_storage storage);
  void run_stage(std::int64_t stage, const slot_rows& in, dit_slot& slot);
  void embed(const slot_rows& in, dit_slot& slot);
  void run_block(std::int64_t index, dit_slot& slot);
  // All between a block's input and its MLP's output; the stream behind the attention goes to `sum`.
  void run_branches(const dit_block& l, kept_block& kept, const float* input, float* sum, block_values& v,
                    float* mlp_out);
  void run_head(dit_slot& slot);
  kernels::seam seam_into(normalised& to, const float* modulation, std::int64_t stride) const;
  void join_mlp(std::int64_t index, dit_slot& slot, kernels::seam& s) const;
  // The block's values as its forward pass left them.
  block_values& values_on_the_way_back(std::int64_t index, dit_slot& slot);

  void differentiate_head(dit_slot& slot, const gradient_part& to);
  void differentiate_block(std::int64_t index, dit_slot& slot, const gradient_part& to);
  void differentiate_mlp(const dit_block& l, block_values& v, const gradient_part& to);
  void differentiate_attention(const dit_block& l, block_values& v, const gradient_part& to);
  void differentiate_embedding(dit_slot& slot, const gradient_part& to);
  void differentiate_condition(const std::int64_t* label, dit_slot& slot, const gradient_part& to);

  void apply(const linear& l, std::int64_t rows, const float* x, float* y,
             kernels::gemm_start start = kernels::gemm_start::bias);
  void differentiate_weight(const linear& l, std::int64_t rows, const float* x, const float* d_y,
                            const gradient_part& to);
  void differentiate_bias(const linear& l, std::int64_t rows, const float* d_y, const gradient_part& to);
  void differentiate_input(const linear& l, std::int64_t rows, const float* d_y, float* d_x,
                           kernels::gemm_start start = kernels::gemm_start::zero);
  // A vector of parameters in fp32; valid until the next one is asked for with the same buffer.
  const float* vector(std::uint64_t first, std::int64_t count, buffer& expanded) const;

  kernels::operand_precision precision() const {
    return half_ ? kernels::operand_precision::bf16 : kernels::operand_precision::fp32;
  }
  std::int64_t rows() const { return batch_ * size_.tokens(); }
  kernels::token_grid grid() const { return {batch_, size_.tokens(), size_.width}; }
  kernels::attention_size attention() const {
    return {batch_, size_.tokens(), size_.heads, size_.width / size_.heads, precision()};
  }

  const dit_size size_;
  const dit_layout layout_;
  const std::vector<stage_span> spans_;
  const block_storage storage_;
  // One of them is bound.
  const float* flat_ = nullptr;
  const kernels::bf16* half_ = nullptr;
  std::int64_t batch_ = 0;  // of the slot at hand
  dit_workspace w_;
  dit_slot predicting_;  // for forward()
};

}  // namespace perdura::worker
