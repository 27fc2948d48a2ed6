// Which sample, time and label is at which position of which step: functions of the job alone, without any
// state.
#pragma once

#include <cstdint>

#include "actors/base/ids.hpp"
#include "kernels/philox.hpp"

namespace perdura::worker {

// A bijection over [0, count), another one for each seed and epoch: a Feistel network over the next power of
// four, walked until it falls into the range (Black and Rogaway, CT-RSA 2002). Precondition: index < count <=
// 2^32.
std::uint64_t shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index, std::uint64_t count);

struct sample_row {
  std::uint64_t sample{};  // in the data set
  float time{};
  bool label_dropped{};
};

struct sampling {
  std::uint64_t seed{};
  std::uint64_t data_size{};
  std::uint32_t batch_size{};
  double label_drop{};

  // Steps count from 1; the run goes through the data set epoch after epoch, each in a new order.
  sample_row row(step_number step, std::uint32_t position) const;
  kernels::random_key key(step_number step, std::uint32_t position, kernels::random_stream stream) const {
    return {.seed = seed, .step = step.value, .sample = position, .stream = stream};
  }
};

}  // namespace perdura::worker
