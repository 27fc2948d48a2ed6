#include "worker/trainer/slot_input.hpp"

#include "kernels/diffusion.hpp"
#include "kernels/philox.hpp"

namespace perdura::worker {

using kernels::random_stream;

slot_input::slot_input(std::uint32_t samples, std::size_t image_size)
    : image_size_(image_size),
      noisy_(samples * image_size),
      target_(samples * image_size),
      times_(samples),
      labels_(samples) {}

void slot_input::draw(const image_set& data, const sampling& draws, step_number step, std::uint32_t slot) {
  for (std::uint32_t i = 0; i < samples(); ++i) {
    const std::uint32_t position = slot * samples() + i;
    const auto row = draws.row(step, position);
    times_[i] = row.time;
    labels_[i] = row.label_dropped ? data.classes : data.labels[row.sample];
    kernels::make_flow_sample(data.image(row.sample), row.time,
                              draws.key(step, position, random_stream::noise),
                              std::span(noisy_).subspan(i * image_size_, image_size_),
                              std::span(target_).subspan(i * image_size_, image_size_));
  }
}

void slot_input::draw_canary(std::uint32_t classes) {
  const auto key = [](std::uint32_t sample) {
    return kernels::random_key{.seed = 0, .step = 0, .sample = sample, .stream = random_stream::canary};
  };
  kernels::fill_normal(key(0), noisy_);
  kernels::fill_normal(key(1), target_);
  kernels::fill_uniform(key(2), times_);
  for (std::uint32_t i = 0; i < samples(); ++i) labels_[i] = i % (classes + 1);
}

}  // namespace perdura::worker
