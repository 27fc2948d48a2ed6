#include "worker/trainer/state.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "actors/base/check.hpp"
#include "kernels/hash.hpp"
#include "worker/trainer/buffers.hpp"

namespace perdura::worker {
namespace {

constexpr std::array all_arrays{state_array::parameters, state_array::first_moment,
                                state_array::second_moment, state_array::average};
static_assert(all_arrays.size() == state_arrays);

std::uint64_t rounded_up(std::uint64_t n, std::uint64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

void cut_stage(std::uint64_t first, std::uint64_t count, std::uint32_t stage, std::vector<tile>& out) {
  const std::uint64_t pieces = (count + tile_floats_max - 1) / tile_floats_max;
  const std::uint64_t size = rounded_up((count + pieces - 1) / pieces, tile_multiple);
  for (std::uint64_t at = 0; at < count; at += size)
    out.push_back({first + at, static_cast<std::uint32_t>(std::min(size, count - at)), stage});
}

}  // namespace

std::vector<tile> cut_tiles(const std::vector<parameter>& parameters) {
  std::vector<tile> tiles;
  for (std::size_t i = 0; i < parameters.size();) {
    const auto& begin = parameters[i];
    std::uint64_t count = 0;
    for (; i < parameters.size() && parameters[i].stage == begin.stage; ++i) {
      PERDURA_CHECK(parameters[i].first == begin.first + count, "a stage's parameters are adjacent");
      count += parameters[i].count;
    }
    if (count > 0) cut_stage(begin.first, count, begin.stage, tiles);
  }
  return tiles;
}

training_state::training_state(std::uint64_t parameter_count)
    : count_(parameter_count),
      stride_(rounded_up(parameter_count, buffer_alignment / sizeof(float))),
      memory_(allocate_floats(stride_ * state_arrays)) {
  std::fill_n(memory_.get(), stride_ * state_arrays, 0.0F);
}

std::span<float> training_state::array(state_array which) {
  return {memory_.get() + static_cast<std::size_t>(which) * stride_, count_};
}

std::span<const float> training_state::array(state_array which) const {
  return {memory_.get() + static_cast<std::size_t>(which) * stride_, count_};
}

kernels::adamw_tile training_state::view(const tile& t) {
  return {.parameters = slice(state_array::parameters, t).data(),
          .first_moment = slice(state_array::first_moment, t).data(),
          .second_moment = slice(state_array::second_moment, t).data(),
          .average = slice(state_array::average, t).data()};
}

void training_state::restart_optimizer() {
  std::ranges::fill(array(state_array::first_moment), 0.0F);
  std::ranges::fill(array(state_array::second_moment), 0.0F);
  std::ranges::copy(array(state_array::parameters), array(state_array::average).begin());
}

blob training_state::copy(const tile& t) const {
  auto buffer = allocate_floats(std::size_t{t.size} * state_arrays);
  float* to = buffer.get();
  for (auto which : all_arrays) to = std::ranges::copy(slice(which, t), to).out;
  return share(std::move(buffer), std::size_t{t.size} * state_arrays);
}

void training_state::install(const tile& t, std::span<const std::byte> bytes) {
  const std::size_t array_bytes = std::size_t{t.size} * sizeof(float);
  PERDURA_CHECK(bytes.size() == array_bytes * state_arrays, "a tile's state has another size than the tile");
  for (std::size_t i = 0; i < state_arrays; ++i)
    std::memcpy(slice(all_arrays[i], t).data(), bytes.data() + i * array_bytes, array_bytes);
}

std::uint64_t training_state::hash(const tile& t) const {
  std::array<std::span<const std::byte>, state_arrays> parts;
  for (std::size_t i = 0; i < state_arrays; ++i) parts[i] = std::as_bytes(slice(all_arrays[i], t));
  return kernels::hash64_of_parts(parts);
}

}  // namespace perdura::worker
