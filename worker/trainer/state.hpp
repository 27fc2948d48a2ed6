// All state of training as flat arrays, and the tiles that they are cut into.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/plan.hpp"
#include "kernels/adamw.hpp"
#include "worker/model/denoiser.hpp"

namespace perdura::worker {

inline constexpr std::uint32_t tile_floats_max = 65536;  // 256 KiB: the largest frame
inline constexpr std::uint32_t tile_multiple = 16;       // all but a stage's last tile fill whole cache lines

// Cuts each stage's parameters into the fewest tiles, of nearly equal size.
std::vector<tile> cut_tiles(const std::vector<parameter>& parameters);

// The arrays of the state, in the order in which a tile is copied.
enum class state_array : std::uint8_t { parameters, first_moment, second_moment, average };
inline constexpr std::size_t state_arrays = 4;

class training_state {
 public:
  explicit training_state(std::uint64_t parameter_count);

  std::span<float> array(state_array which);
  std::span<const float> array(state_array which) const;
  std::span<float> slice(state_array which, const tile& t) { return array(which).subspan(t.first, t.size); }
  std::span<const float> slice(state_array which, const tile& t) const {
    return array(which).subspan(t.first, t.size);
  }
  kernels::adamw_tile view(const tile& t);

  // Moments to zero, the average to the parameters.
  void restart_optimizer();

  blob copy(const tile& t) const;
  // Precondition: bytes.size() is that of copy().
  void install(const tile& t, std::span<const std::byte> bytes);
  std::uint64_t hash(const tile& t) const;  // hash64 of copy()

 private:
  std::uint64_t count_;
  std::uint64_t stride_;  // count_ rounded up, so that each array is aligned
  std::shared_ptr<float> memory_;
};

}  // namespace perdura::worker
