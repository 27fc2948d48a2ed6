// What a denoiser is given for one slot: noisy images, times, labels and targets, made in place.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/base/ids.hpp"
#include "worker/data/image_set.hpp"
#include "worker/data/sampling.hpp"

namespace perdura::worker {

class slot_input {
 public:
  slot_input(std::uint32_t samples, std::size_t image_size);

  // The samples at the positions slot * samples() and following of the step's batch.
  void draw(const image_set& data, const sampling& draws, step_number step, std::uint32_t slot);
  // Numbers from nothing but the seed of the canary: the same for every data set of this shape.
  void draw_canary(std::uint32_t classes);

  std::uint32_t samples() const { return static_cast<std::uint32_t>(times_.size()); }
  const float* noisy() const { return noisy_.data(); }
  const float* target() const { return target_.data(); }
  const float* times() const { return times_.data(); }
  const std::int64_t* labels() const { return labels_.data(); }

 private:
  std::size_t image_size_;
  std::vector<float> noisy_;
  std::vector<float> target_;
  std::vector<float> times_;
  std::vector<std::int64_t> labels_;
};

}  // namespace perdura::worker
