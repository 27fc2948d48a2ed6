// The numbers of training, without any protocol: what the step protocol asks to be computed, on one lane
// (thread). Nothing here knows of workers, plans or links; every call is deterministic in its arguments and
// the state. Calls do not overlap, but for copy_*() and hash_tile(), which read alone, and what
// block_surroundings allows.
//
// Where state is sharded, a trainer has the moments, the average and (under bf16) the master weights of the
// tiles it holds, and of parameters what sharding_level says:
//   replicated               all tiles are held from the start
//   optimizer, gradients     all parameters
//   parameters               those of tiles held or gathered
// Under `gradients` and `parameters` no gradient is ever whole: a block's slots go through the stages side by
// side, and a stage's gradient leaves as soon as it is summed. The bits are the same at every level.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/config.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

// What a block is computed among. All is called on the lane, while compute_block runs. Between stages other
// work on the state may be done there: copies, reductions, installing and dropping parameters, applies and
// installs of tiles whose stage is not acquired.
class block_surroundings {
 public:
  virtual ~block_surroundings() = default;

  // The block is no longer wanted.
  virtual bool stop() { return false; }
  // The stage is needed now: returns when all its tiles have their parameters, or false to give up. Every
  // stage acquired is released once. Forward passes acquire the stages in order, backward passes in reverse;
  // the last one serves both at once.
  virtual bool acquire([[maybe_unused]] std::uint32_t stage) { return true; }
  virtual void release([[maybe_unused]] std::uint32_t stage) {}
  // Between slots and between stages: a moment for other work.
  virtual void breathe() {}
  // Another slot's worth of computing is done, and took so long (waiting and other work not counted). Slots
  // side by side count one after the other, as their work gets on.
  virtual void slot_done([[maybe_unused]] std::chrono::nanoseconds spent) {}
  // The block's sum on one tile, float32[tile.size]: never changed from here on. `loss` is the block's.
  virtual void tile_done([[maybe_unused]] tile_id tile, [[maybe_unused]] blob gradient,
                         [[maybe_unused]] double loss) {}
};

// Keeps what a block sums to.
class block_collector : public block_surroundings {
 public:
  explicit block_collector(std::size_t tiles_count) : tiles(tiles_count) {}
  void tile_done(tile_id tile, blob gradient, double) override { tiles[tile.value] = std::move(gradient); }

  std::vector<blob> tiles;
};

struct computed_sum {
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

// Bytes, by what they are for.
struct memory_use {
  std::uint64_t state{};        // all arrays of the tiles held
  std::uint64_t parameters{};   // beyond those
  std::uint64_t gradients{};    // buffers in use and kept for the next block
  std::uint64_t activations{};  // of the slots side by side, and the workspace
  std::uint64_t total() const { return state + parameters + gradients + activations; }
};

class trainer {
 public:
  virtual ~trainer() = default;

  virtual const std::vector<tile>& tiles() const = 0;
  // The model's parameters by name, in flat order.
  virtual std::vector<named_tensor> tensors() const = 0;
  virtual std::uint64_t parameter_count() const = 0;
  // Hash of the loss and gradients of a fixed slot on fixed parameters, and of an optimizer step with them:
  // differs where the bits of training would. Leaves the state as it is.
  virtual std::uint64_t numeric_class() = 0;

  // Makes room for a tile's state; what is in it is undefined until it is initialised or installed.
  virtual void hold(tile_id tile) = 0;
  // Gives that room back. The parameters stay: drop_parameters() is for them.
  virtual void let_go(tile_id tile) = 0;
  virtual bool is_held(tile_id tile) const = 0;

  // State of version 0, from the seed: of all tiles held, and all parameters that the level keeps.
  virtual void initialise() = 0;

  // Each slot has a fresh gradient; they are summed along the tree and leave tile by tile through `around`.
  // Empty when `around` stopped it or gave up meanwhile: what left until then is to be thrown away.
  virtual std::optional<computed_sum> compute_block(step_number step, block slots,
                                                    block_surroundings& around) = 0;
  // Finishes the tree: partials cover all slots, disjoint, in slot order. Divides gradient and loss by the
  // batch size.
  virtual reduced_tile reduce(tile_id tile, std::span<const tile_partial> partials) = 0;
  // Optimizer and EMA on one tile; all scalars come from the outcome. A skipped step changes nothing.
  virtual void apply(tile_id tile, const blob& gradient, const step_outcome& outcome) = 0;

  // All arrays of a tile that is held, one after the other: parameters (the master weights under bf16), first
  // and second moment, EMA (float32[tile.size] each). To install is to hold.
  virtual blob copy_tile(tile_id tile) const = 0;
  // The same, of the tile as it is now, but later, if it does not change before: for snapshots. `done` is
  // called on some thread; never, when the trainer goes before.
  virtual void copy_tile_later(tile_id tile, std::function<void(blob)> done) { done(copy_tile(tile)); }
  virtual void install_tile(tile_id tile, std::span<const std::byte> state) = 0;
  // XXH3 of what copy_tile() gives.
  virtual std::uint64_t hash_tile(tile_id tile) const = 0;

  // The parameters alone as they are computed with, for members that do not hold the tile: float32, or
  // bfloat16 under that precision.
  virtual blob copy_parameters(tile_id tile) const = 0;
  virtual void install_parameters(tile_id tile, std::span<const std::byte> values) = 0;
  virtual bool has_parameters(tile_id tile) const = 0;
  // Gives back the parameters of a tile that is not held, under sharding_level::parameters; else nothing.
  virtual void drop_parameters(tile_id tile) = 0;

  virtual memory_use memory() const = 0;
};

// Reads the data set and builds the model. Errors: a missing data set, an unknown kind, impossible sizes.
result<std::unique_ptr<trainer>> make_trainer(const job_config& job);

// The same from parts. Errors: sizes of data, batch, slots and model that do not fit each other.
class denoiser;
struct image_set;
result<std::unique_ptr<trainer>> assemble_trainer(const job_config& job, image_set data,
                                                  std::unique_ptr<denoiser> model);

}  // namespace perdura::worker
