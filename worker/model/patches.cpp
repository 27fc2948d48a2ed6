#include "worker/model/patches.hpp"

#include <algorithm>

namespace perdura::worker {
namespace {

// f(offset in images, offset in patches) for every run of `patch` adjacent pixels.
template <class F>
void for_each_run(const dit_size& size, std::int64_t batch, F f) {
  const std::int64_t p = size.patch, across = size.image.width / p, features = size.features();
  for (std::int64_t sample = 0; sample < batch; ++sample) {
    for (std::int64_t channel = 0; channel < size.image.channels; ++channel) {
      for (std::int64_t y = 0; y < size.image.height; ++y) {
        const std::int64_t line =
            ((sample * size.image.channels + channel) * size.image.height + y) * size.image.width;
        for (std::int64_t column = 0; column < across; ++column) {
          const std::int64_t token = sample * size.tokens() + y / p * across + column;
          f(line + column * p, token * features + (channel * p + y % p) * p);
        }
      }
    }
  }
}

}  // namespace

void cut_patches(const dit_size& size, std::int64_t batch, const float* images, float* patches) {
  for_each_run(size, batch, [&](std::int64_t image, std::int64_t patch) {
    std::copy_n(images + image, size.patch, patches + patch);
  });
}

void join_patches(const dit_size& size, std::int64_t batch, const float* patches, float* images) {
  for_each_run(size, batch, [&](std::int64_t image, std::int64_t patch) {
    std::copy_n(patches + patch, size.patch, images + image);
  });
}

}  // namespace perdura::worker
