#include "worker/model/dit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

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

template <class... Parts>
std::uint64_t bytes_of(const dit_size& size, Parts&&... parts) {
  std::uint64_t floats = 0;
  for_each_buffer(size, std::forward<Parts>(parts)...,
                  [&](buffer&, std::int64_t count) { floats += static_cast<std::uint64_t>(count); });
  return floats * sizeof(float);
}

}  // namespace

dit::dit(const dit_size& size, bool checkpoints_activations)
    : size_(size),
      layout_(make_dit_layout(size)),
      spans_(spans_of(layout_.parameters)),
      storage_(checkpoints_activations ? block_storage::input : block_storage::all) {
  predicting_.blocks.resize(static_cast<std::size_t>(size.depth));
}

void dit::bind(const float* flat) {
  flat_ = flat;
  half_ = nullptr;
}

void dit::bind(const kernels::bf16* flat) {
  flat_ = nullptr;
  half_ = flat;
}

// Modulations, biases and the head start at zero, so that each block is the identity; embeddings and the time
// MLP are normal, all else is Xavier-uniform.
void dit::initialise(std::uint64_t seed, std::uint64_t first, std::span<float> to) const {
  for (std::size_t i = 0; i < layout_.parameters.size(); ++i) {
    const parameter& p = layout_.parameters[i];
    const std::uint64_t begin = std::max(first, p.first);
    const std::uint64_t end = std::min(first + to.size(), p.first + p.count);
    if (begin >= end) continue;
    const auto values = to.subspan(begin - first, end - begin);
    const auto element = static_cast<std::uint32_t>(begin - p.first);
    const kernels::random_key key{seed, 0, static_cast<std::uint32_t>(i), kernels::random_stream::initial};
    if (starts_at_zero(layout_, p)) {
      std::fill(values.begin(), values.end(), 0.0F);
    } else if (p.stage == 0 && p.first != layout_.patch.weight) {
      kernels::fill_normal(key, values, element);
      for (float& v : values) v *= embedding_deviation;
    } else {
      kernels::fill_uniform(key, values, element);
      const float bound = std::sqrt(6.0F / static_cast<float>(p.shape[0] + p.shape[1]));
      for (float& v : values) v = (2.0F * v - 1.0F) * bound;
    }
  }
}

std::unique_ptr<slot_values> dit::make_slot() const {
  auto slot = std::make_unique<dit_slot>();
  slot->blocks.resize(static_cast<std::size_t>(size_.depth));
  return slot;
}

std::uint64_t dit::slot_bytes(std::int64_t batch) const {
  dit_slot slot;
  slot.storage = storage_;
  slot.blocks.resize(static_cast<std::size_t>(size_.depth));
  return bytes_of(size_, batch, slot);
}

std::uint64_t dit::workspace_bytes(std::int64_t batch) const {
  dit_workspace w;
  return bytes_of(size_, batch, storage_, w);
}

void dit::begin(std::int64_t batch, dit_slot& slot, block_storage storage) {
  PERDURA_CHECK((flat_ || half_) && batch > 0, "a denoiser is bound before it is run");
  slot.storage = storage;
  const auto reserve = [](buffer& b, std::int64_t count) { b.reserve(count); };
  for_each_buffer(size_, batch, slot, reserve);
  for_each_buffer(size_, batch, storage, w_, reserve);
}

void dit::forward_stage(std::uint32_t stage, const slot_rows& rows, slot_values& values) {
  auto& slot = static_cast<dit_slot&>(values);
  if (stage == 0) begin(rows.batch, slot, storage_);
  run_stage(stage, rows, slot);
}

at::Tensor dit::forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) {
  const std::int64_t batch = noisy.size(0), image = size_.image.count();
  PERDURA_CHECK(noisy.numel() == batch * image && time.numel() == batch && label.numel() == batch,
                "images, times and labels of one batch");
  const at::Tensor x = noisy.contiguous(), t = time.contiguous(), y = label.contiguous();
  at::Tensor out = at::empty(noisy.sizes(), x.options());
  for (std::int64_t first = 0; first < batch; first += forward_rows_max) {
    const std::int64_t n = std::min(forward_rows_max, batch - first);
    const slot_rows rows{x.const_data_ptr<float>() + first * image, t.const_data_ptr<float>() + first,
                         y.const_data_ptr<std::int64_t>() + first, nullptr, n};
    begin(n, predicting_, block_storage::nothing);
    for (std::int64_t stage = 0; stage < size_.depth + 2; ++stage) run_stage(stage, rows, predicting_);
    join_patches(size_, n, predicting_.predicted, out.mutable_data_ptr<float>() + first * image);
  }
  return out;
}

}  // namespace perdura::worker
