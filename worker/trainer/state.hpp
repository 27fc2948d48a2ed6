// The state of training as flat arrays, and the tiles that they are cut into. Of each array only the tiles
// that are held take memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/plan.hpp"
#include "kernels/adamw.hpp"
#include "kernels/bf16.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/sparse_memory.hpp"

namespace perdura::worker {

inline constexpr std::uint32_t tile_floats_max = 65536;  // 256 KiB: the largest frame
inline constexpr std::uint32_t tile_multiple = 16;       // all but a stage's last tile fill whole cache lines

// Cuts each stage's parameters into the fewest tiles, of nearly equal size.
std::vector<tile> cut_tiles(const std::vector<parameter>& parameters);

// The arrays of the state, in the order in which a tile is copied.
enum class state_array : std::uint8_t { parameters, first_moment, second_moment, average };
inline constexpr std::size_t state_arrays = 4;

struct state_layout {
  std::uint64_t parameter_count{};
  std::vector<tile> tiles;
  bool keeps_all_parameters = true;  // not only those held or gathered
  // What is computed with is the bfloat16 of the parameters, in an array of its own; the parameters
  // themselves are then master weights, which only a tile's holders have.
  bool computes_in_bf16 = false;
};

class training_state {
 public:
  explicit training_state(state_layout layout);

  const std::vector<tile>& tiles() const { return layout_.tiles; }
  const tile& at(tile_id id) const;

  // All arrays of a held tile take memory; what is in them is up to who writes them next.
  void hold(tile_id id);
  // Its parameters stay where they are, as gathered ones.
  void let_go(tile_id id);
  bool is_held(tile_id id) const { return held_[id.value]; }
  bool has_parameters(tile_id id) const {
    return layout_.keeps_all_parameters || held_[id.value] || gathered_[id.value];
  }
  // Of a tile that is neither held nor kept anyway.
  void drop_parameters(tile_id id);

  std::span<float> slice(state_array which, const tile& t) { return {floats(which) + t.first, t.size}; }
  std::span<const float> slice(state_array which, const tile& t) const {
    return {floats(which) + t.first, t.size};
  }
  kernels::adamw_tile view(const tile& t);

  // To what is computed with.
  void bind_to(denoiser& model) const;
  // What is computed with follows the tile's parameters. Call after a change to them.
  void round_parameters(const tile& t);

  // The tile's parameters are `values`, in whatever is computed with.
  void set_parameters(const tile& t, std::span<const float> values);

  // Precondition: it is held, and bytes.size() is that of copy().
  blob copy(tile_id id) const;
  void install(tile_id id, std::span<const std::byte> bytes);
  std::uint64_t hash(tile_id id) const;  // hash64 of copy()

  // What is computed with: 4 bytes a parameter, or 2 in bfloat16. Installed parameters of a tile that is not
  // held count as gathered.
  blob copy_parameters(tile_id id) const;
  void install_parameters(tile_id id, std::span<const std::byte> values);

  std::uint64_t held_bytes() const;       // of the tiles held, all arrays
  std::uint64_t parameter_bytes() const;  // of parameters beyond those
  std::uint64_t resident_bytes() const;   // of both, as the kernel counts pages

 private:
  float* floats(state_array which) const {
    return reinterpret_cast<float*>(arrays_[static_cast<std::size_t>(which)]->data());
  }
  kernels::bf16* halves() const { return reinterpret_cast<kernels::bf16*>(halves_->data()); }
  sparse_memory& computed_with() {
    return halves_ ? *halves_ : *arrays_[static_cast<std::size_t>(state_array::parameters)];
  }
  std::uint64_t bytes_computed_with() const {
    return layout_.computes_in_bf16 ? sizeof(kernels::bf16) : sizeof(float);
  }
  void use_parameters(tile_id id);

  const state_layout layout_;
  std::array<std::optional<sparse_memory>, state_arrays> arrays_;
  std::optional<sparse_memory> halves_;
  std::vector<bool> held_;
  std::vector<bool> gathered_;  // parameters of tiles that are not held
};

}  // namespace perdura::worker
