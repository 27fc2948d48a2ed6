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

training_state::training_state(state_layout layout)
    : layout_(std::move(layout)), held_(layout_.tiles.size()), gathered_(layout_.tiles.size()) {
  for (auto& array : arrays_) array.emplace(layout_.parameter_count * sizeof(float));
  if (layout_.computes_in_bf16) halves_.emplace(layout_.parameter_count * sizeof(kernels::bf16));
  if (layout_.keeps_all_parameters) computed_with().use(0, computed_with().size());
}

const tile& training_state::at(tile_id id) const {
  PERDURA_CHECK(id.value < layout_.tiles.size(), "there is no such tile");
  return layout_.tiles[id.value];
}

void training_state::use_parameters(tile_id id) {
  if (has_parameters(id)) return;
  const auto& t = at(id);
  computed_with().use(t.first * bytes_computed_with(), t.size * bytes_computed_with());
}

void training_state::hold(tile_id id) {
  const auto& t = at(id);
  if (held_[id.value]) return;
  use_parameters(id);
  for (auto which : all_arrays) {
    auto& array = *arrays_[static_cast<std::size_t>(which)];
    if (&array != &computed_with()) array.use(t.first * sizeof(float), t.size * sizeof(float));
  }
  held_[id.value] = true;
  gathered_[id.value] = false;
}

void training_state::let_go(tile_id id) {
  const auto& t = at(id);
  if (!held_[id.value]) return;
  for (auto which : all_arrays) {
    auto& array = *arrays_[static_cast<std::size_t>(which)];
    if (&array != &computed_with()) array.give_back(t.first * sizeof(float), t.size * sizeof(float));
  }
  held_[id.value] = false;
  gathered_[id.value] = true;
}

void training_state::drop_parameters(tile_id id) {
  const auto& t = at(id);
  if (layout_.keeps_all_parameters || held_[id.value] || !gathered_[id.value]) return;
  computed_with().give_back(t.first * bytes_computed_with(), t.size * bytes_computed_with());
  gathered_[id.value] = false;
}

kernels::adamw_tile training_state::view(const tile& t) {
  return {.parameters = slice(state_array::parameters, t).data(),
          .first_moment = slice(state_array::first_moment, t).data(),
          .second_moment = slice(state_array::second_moment, t).data(),
          .average = slice(state_array::average, t).data()};
}

void training_state::bind_to(denoiser& model) const {
  if (halves_)
    model.bind(halves());
  else
    model.bind(floats(state_array::parameters));
}

void training_state::round_parameters(const tile& t) {
  if (halves_) set_parameters(t, slice(state_array::parameters, t));
}

void training_state::set_parameters(const tile& t, std::span<const float> values) {
  if (halves_)
    kernels::round_to_bf16(values, {halves() + t.first, t.size});
  else
    std::ranges::copy(values, slice(state_array::parameters, t).begin());
}

blob training_state::copy(tile_id id) const {
  const auto& t = at(id);
  PERDURA_CHECK(is_held(id), "only a holder copies a tile");
  auto buffer = allocate_floats(std::size_t{t.size} * state_arrays);
  float* to = buffer.get();
  for (auto which : all_arrays) to = std::ranges::copy(slice(which, t), to).out;
  return share(std::move(buffer), std::size_t{t.size} * state_arrays);
}

void training_state::install(tile_id id, std::span<const std::byte> bytes) {
  const auto& t = at(id);
  const std::size_t array_bytes = std::size_t{t.size} * sizeof(float);
  PERDURA_CHECK(bytes.size() == array_bytes * state_arrays, "a tile's state has another size than the tile");
  hold(id);
  for (std::size_t i = 0; i < state_arrays; ++i)
    std::memcpy(slice(all_arrays[i], t).data(), bytes.data() + i * array_bytes, array_bytes);
  round_parameters(t);
}

std::uint64_t training_state::hash(tile_id id) const {
  const auto& t = at(id);
  PERDURA_CHECK(is_held(id), "only a holder hashes a tile");
  std::array<std::span<const std::byte>, state_arrays> parts;
  for (std::size_t i = 0; i < state_arrays; ++i) parts[i] = std::as_bytes(slice(all_arrays[i], t));
  return kernels::hash64_of_parts(parts);
}

blob training_state::copy_parameters(tile_id id) const {
  const auto& t = at(id);
  PERDURA_CHECK(has_parameters(id), "only who has a tile's parameters copies them");
  if (halves_) return blob::copy_of(std::as_bytes(std::span(halves() + t.first, t.size)));
  return blob::copy_of(std::as_bytes(slice(state_array::parameters, t)));
}

void training_state::install_parameters(tile_id id, std::span<const std::byte> values) {
  const auto& t = at(id);
  PERDURA_CHECK(values.size() == t.size * bytes_computed_with(),
                "a tile's parameters have another size than the tile");
  use_parameters(id);
  if (!held_[id.value]) gathered_[id.value] = true;
  std::memcpy(computed_with().data() + t.first * bytes_computed_with(), values.data(), values.size());
}

std::uint64_t training_state::held_bytes() const {
  const std::uint64_t element = state_arrays * sizeof(float) + (halves_ ? sizeof(kernels::bf16) : 0);
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (held_[i]) bytes += layout_.tiles[i].size * element;
  return bytes;
}

std::uint64_t training_state::parameter_bytes() const {
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < held_.size(); ++i)
    if (!held_[i] && (layout_.keeps_all_parameters || gathered_[i]))
      bytes += layout_.tiles[i].size * bytes_computed_with();
  return bytes;
}

std::uint64_t training_state::resident_bytes() const {
  std::uint64_t bytes = halves_ ? halves_->resident_bytes() : 0;
  for (const auto& array : arrays_) bytes += array->resident_bytes();
  return bytes;
}

}  // namespace perdura::worker
