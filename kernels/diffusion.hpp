// Inputs of rectified flow (Liu et al., ICLR 2023): x_t = (1 - t) x + t n, and the velocity n - x as the
// target.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/philox.hpp"

namespace perdura::kernels {

// Logit-normal time in (0, 1): the sigmoid of a standard normal (Esser et al., ICML 2024).
float logit_normal_time(const random_key& key);

// One sample: pixels 0..255 become x in [-1, 1]; the noise is drawn from `key`, element i for pixel i.
void make_flow_sample(std::span<const std::uint8_t> pixels, float time, const random_key& key,
                      std::span<float> noisy, std::span<float> target);

}  // namespace perdura::kernels
