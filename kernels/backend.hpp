// One table of the loops an instruction set. The loops are the same source (loops.hpp) compiled once for any
// CPU and once for AVX2 and FMA; since every rounding in them is spelled out, both give the same bits, which
// is tested.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/adamw.hpp"
#include "kernels/bf16.hpp"
#include "kernels/philox.hpp"
#include "kernels/sums.hpp"

namespace perdura::kernels {

struct backend {
  const char* name;
  // Elements from 4 * first_block on.
  void (*fill_uniform)(const random_key&, std::uint32_t first_block, float* out, std::size_t count);
  void (*fill_normal)(const random_key&, std::uint32_t first_block, float* out, std::size_t count);
  void (*add)(const float* left, const float* right, float* out, std::size_t count);
  double (*reduce)(const reduce_input* inputs, std::size_t inputs_count, float scale, float* out,
                   std::size_t count);
  double (*norm2)(const float* values, std::size_t count);
  void (*adamw)(const adamw_scalars&, const adamw_tile&, const float* gradient, std::size_t count);
  void (*blend)(const std::uint8_t* pixels, float time, float* noise_then_target, float* noisy,
                std::size_t count);
  void (*to_bf16)(const float* from, bf16* to, std::size_t count);
};

const backend& scalar_backend();
// Null where the CPU or the build has no AVX2 and FMA.
const backend* avx2_backend();
// The fastest that this CPU runs.
const backend& best_backend();

}  // namespace perdura::kernels
