#include "worker/model/dit.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/dit_pointwise.hpp"
#include "kernels/philox.hpp"
#include "worker/model/patches.hpp"
#include "worker/model/torch.hpp"

namespace perdura::worker {
namespace {

// Rows of a prediction computed at once: bounds the memory, and changes no bit.
constexpr std::int64_t forward_rows_max = 16;

constexpr float embedding_deviation = 0.02F;

bool starts_at_zero(const dit_layout& layout, const parameter& p) {
  const bool is_vector = p.shape.size() == 1;
  const bool is_modulation = p.name.find("condition.") != std::string::npos;
  return is_vector || is_modulation || p.first == layout.head.weight;
}

}  // namespace

dit::dit(const dit_size& size) : size_(size), layout_(make_dit_layout(size)) {
  v_.blocks.resize(static_cast<std::size_t>(size.depth));
  d_.modulation.resize(static_cast<std::size_t>(size.depth));
}

// Modulations, biases and the head start at zero, so that each block is the identity; embeddings and the time
// MLP are normal, all else is Xavier-uniform.
void dit::initialise(std::uint64_t seed, float* flat) const {
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const parameter& p = layout_.parameters[i];
    const std::span<float> values(flat + p.first, p.count);
    const kernels::random_key key{seed, 0, static_cast<std::uint32_t>(i), kernels::random_stream::initial};
    if (starts_at_zero(layout_, p)) {
      std::fill(values.begin(), values.end(), 0.0F);
    } else if (p.stage == 0 && p.first != layout_.patch.weight) {
      kernels::fill_normal(key, values);
      for (float& v : values) v *= embedding_deviation;
    } else {
      kernels::fill_uniform(key, values);
      const float bound = std::sqrt(6.0F / static_cast<float>(p.shape[0] + p.shape[1]));
      for (float& v : values) v = (2.0F * v - 1.0F) * bound;
    }
  }
}

at::Tensor dit::forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) {
  PERDURA_CHECK(flat_ != nullptr, "a denoiser is bound before it is run");
  const std::int64_t batch = noisy.size(0), image = size_.image.count();
  PERDURA_CHECK(noisy.numel() == batch * image && time.numel() == batch && label.numel() == batch,
                "images, times and labels of one batch");
  const at::Tensor x = noisy.contiguous(), t = time.contiguous(), y = label.contiguous();
  at::Tensor out = at::empty(noisy.sizes(), x.options());
  for (std::int64_t first = 0; first < batch; first += forward_rows_max) {
    const std::int64_t n = std::min(forward_rows_max, batch - first);
    reserve(n, false);
    run_forward({x.const_data_ptr<float>() + first * image, t.const_data_ptr<float>() + first,
                 y.const_data_ptr<std::int64_t>() + first, n});
    join_patches(size_, n, v_.predicted, out.mutable_data_ptr<float>() + first * image);
  }
  return out;
}

void dit::enter(std::int64_t stage) const {
  if (listener_) listener_->before_stage(static_cast<std::uint32_t>(stage));
}

void dit::leave(std::int64_t stage) const {
  if (listener_) listener_->after_stage(static_cast<std::uint32_t>(stage));
}

void dit::reserve(std::int64_t batch, bool derivatives) {
  batch_ = batch;
  const std::int64_t rows = batch * size_.tokens(), d = size_.width, wide = rows * d,
                     hidden = rows * size_.hidden;
  const auto reserve_seam = [&](normalised& n) {
    n.normal.reserve(wide);
    n.reciprocal.reserve(rows);
    n.modulated.reserve(wide);
  };
  v_.patches.reserve(rows * size_.features());
  v_.predicted.reserve(rows * size_.features());
  v_.stream.reserve(wide);
  v_.time_features.reserve(batch * kernels::time_features_count);
  for (buffer* b : {&v_.time_hidden, &v_.time_activated, &v_.condition, &v_.condition_activated})
    b->reserve(batch * d);
  for (block_values& b : v_.blocks) {
    b.modulation.reserve(batch * 6 * d);
    reserve_seam(b.attention_input);
    reserve_seam(b.mlp_input);
    b.qkv.reserve(3 * wide);
    b.weights.reserve(attention().weights());
    for (buffer* w : {&b.attended, &b.attention_out, &b.mlp_out}) w->reserve(wide);
    b.expanded.reserve(hidden);
    b.activated.reserve(hidden);
  }
  v_.head_modulation.reserve(batch * 2 * d);
  reserve_seam(v_.head_input);
  const std::int64_t widest = std::max({6 * d, size_.hidden, size_.features(), kernels::time_features_count});
  v_.scratch.reserve(std::max(kernels::gemm_scratch(widest, std::max(rows, widest)),
                              kernels::attention_scratch(attention())));
  if (!derivatives) return;
  for (buffer* w : {&d_.stream, &d_.branch, &d_.attended}) w->reserve(wide);
  d_.qkv.reserve(3 * wide);
  d_.hidden.reserve(hidden);
  d_.predicted.reserve(rows * size_.features());
  for (buffer& b : d_.modulation) b.reserve(batch * 6 * d);
  d_.head_modulation.reserve(batch * 2 * d);
  d_.condition.reserve(batch * d);
  d_.time_hidden.reserve(batch * d);
}

}  // namespace perdura::worker
