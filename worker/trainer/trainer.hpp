// The numbers of training, without any protocol: what the step protocol asks to be computed, on one lane
// (thread). Nothing here knows of workers, plans or links; every call is deterministic in its arguments and
// the state. Calls do not overlap, but for reduce(), copy_*() and hash_tile(), which read alone and may run
// beside compute_block().
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/config.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

// The gradient sum of a block of slots: the canonical tree over its slots, in fp32, as one flat vector in
// which tile t is [tiles[t].first, + size). Shared with frames in flight: never changed once computed.
struct block_gradient {
  block slots;
  blob values;    // float32[parameter_count]
  double loss{};  // canonical sum of the slots' losses
  std::chrono::nanoseconds spent{};
};

struct reduced_tile {
  blob gradient;  // float32[tile.size], mean over the batch
  double norm2{};
  bool finite{};
  double loss{};
};

// One block's sum on one tile, as held by the tile's owner.
struct tile_partial {
  block slots;
  double loss{};
  blob gradient;  // float32[tile.size]
};

class trainer {
 public:
  virtual ~trainer() = default;

  virtual const std::vector<tile>& tiles() const = 0;
  virtual std::uint64_t parameter_count() const = 0;
  // Hash of the loss and gradients of a fixed slot on fixed parameters, and of an optimizer step with them:
  // differs where the bits of training would. Leaves the state as it is.
  virtual std::uint64_t numeric_class() = 0;

  // State of version 0, from the seed.
  virtual void initialise() = 0;

  // Slots are executed one by one, each with a fresh gradient, summed along the tree. Empty when `stop` was
  // set meanwhile (it is looked at between slots). `slots_done` counts them one by one, for those who watch
  // from another thread whether this one gets on.
  virtual std::optional<block_gradient> compute_block(step_number step, block slots,
                                                      const std::atomic<bool>& stop,
                                                      std::atomic<std::uint64_t>* slots_done = nullptr) = 0;
  // Finishes the tree: partials cover all slots, disjoint, in slot order. Divides gradient and loss by the
  // batch size.
  virtual reduced_tile reduce(tile_id tile, std::span<const tile_partial> partials) = 0;
  // Optimizer and EMA on one tile; all scalars come from the outcome. A skipped step changes nothing.
  virtual void apply(tile_id tile, const blob& gradient, const step_outcome& outcome) = 0;

  // All arrays of a tile, one after the other: parameters, first and second moment, EMA (float32[tile.size]
  // each).
  virtual blob copy_tile(tile_id tile) const = 0;
  virtual void install_tile(tile_id tile, std::span<const std::byte> state) = 0;
  // The parameters alone, for members that hold no optimizer state of the tile.
  virtual blob copy_parameters(tile_id tile) const = 0;
  virtual void install_parameters(tile_id tile, std::span<const std::byte> values) = 0;
  // XXH3 of what copy_tile() gives.
  virtual std::uint64_t hash_tile(tile_id tile) const = 0;
};

// Reads the data set and builds the model. Errors: a missing data set, an unknown kind, impossible sizes.
result<std::unique_ptr<trainer>> make_trainer(const job_config& job);

// The same from parts. Errors: sizes of data, batch, slots and model that do not fit each other.
class denoiser;
struct image_set;
result<std::unique_ptr<trainer>> assemble_trainer(const job_config& job, image_set data,
                                                  std::unique_ptr<denoiser> model);

}  // namespace perdura::worker
