#include "worker/data/sampling.hpp"

#include <bit>

#include "actors/base/check.hpp"
#include "kernels/diffusion.hpp"

namespace perdura::worker {
namespace {

constexpr std::uint32_t feistel_rounds = 6;

std::uint64_t feistel(std::uint64_t seed, std::uint64_t epoch, std::uint64_t value, unsigned half_bits) {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  std::uint64_t left = value >> half_bits;
  std::uint64_t right = value & mask;
  for (std::uint32_t round = 0; round < feistel_rounds; ++round) {
    const kernels::random_key key{
        .seed = seed, .step = epoch, .sample = round, .stream = kernels::random_stream::shuffle};
    const std::uint64_t mixed = left ^ (kernels::random_word(key, static_cast<std::uint32_t>(right)) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits | right;
}

}  // namespace

std::uint64_t shuffled(std::uint64_t seed, std::uint64_t epoch, std::uint64_t index, std::uint64_t count) {
  PERDURA_CHECK(index < count && count <= std::uint64_t{1} << 32,
                "a sample's index lies outside the data set");
  if (count == 1) return 0;
  const auto half_bits = static_cast<unsigned>((std::bit_width(count - 1) + 1) / 2);
  do index = feistel(seed, epoch, index, half_bits);
  while (index >= count);
  return index;
}

sample_row sampling::row(step_number step, std::uint32_t position) const {
  using kernels::random_stream;
  PERDURA_CHECK(step.value >= 1 && position < batch_size,
                "a batch has positions below its size, steps count from 1");
  const std::uint64_t drawn = (step.value - 1) * batch_size + position;
  return {.sample = shuffled(seed, drawn / data_size, drawn % data_size, data_size),
          .time = kernels::logit_normal_time(key(step, position, random_stream::time)),
          .label_dropped =
              kernels::random_uniform(key(step, position, random_stream::label_drop), 0) < label_drop};
}

}  // namespace perdura::worker
