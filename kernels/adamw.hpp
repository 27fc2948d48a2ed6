// AdamW (Loshchilov and Hutter, ICLR 2019; as torch.optim.AdamW) with gradient clipping and an exponential
// moving average of the parameters, fused into one pass over a tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "actors/base/config.hpp"
#include "actors/base/plan.hpp"

namespace perdura::kernels {

// All arrays have the same size.
struct adamw_tile {
  float* parameters{};
  float* first_moment{};
  float* second_moment{};
  float* average{};
};

// What one step multiplies by; rounded to fp32 once, from fp64.
struct adamw_scalars {
  float clip{};           // gradient *= clip
  float keep{};           // 1 - learning rate * weight decay
  float first_weight{};   // 1 - beta1
  float second_keep{};    // beta2
  float second_weight{};  // 1 - beta2
  float step_size{};      // learning rate / (1 - beta1^t)
  float inverse_root{};   // 1 / sqrt(1 - beta2^t)
  float epsilon{};
  float average_weight{};  // 1 - EMA decay
};

// base^exponent by repeated squaring: the same bits everywhere, which the C library's pow does not promise.
double power(double base, std::uint64_t exponent);

// Precondition: outcome.optimizer_time >= 1.
adamw_scalars scalars_of(const optimizer_config& config, const step_outcome& outcome);

// A skipped step leaves all arrays as they are.
void apply_adamw(const optimizer_config& config, const step_outcome& outcome, const adamw_tile& tile,
                 std::span<const float> gradient);

}  // namespace perdura::kernels
