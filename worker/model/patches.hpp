// An image as the tokens of a transformer: [batch, channels, height, width] <-> [batch, tokens, channels x
// patch x patch].
#pragma once

#include "worker/model/dit_layout.hpp"

namespace perdura::worker {

void cut_patches(const dit_size& size, std::int64_t batch, const float* images, float* patches);
void join_patches(const dit_size& size, std::int64_t batch, const float* patches, float* images);

}  // namespace perdura::worker
