// A block's slots on their way through the stages, and the sums of their gradients.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/model/denoiser.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/slot_input.hpp"
#include "worker/trainer/trainer.hpp"

namespace perdura::worker {

// The surroundings, with a clock that stands still while they have the lane.
class work_watch {
 public:
  explicit work_watch(block_surroundings& around) : around_(around) {}

  bool acquire(std::uint32_t stage);
  void release(std::uint32_t stage);
  // `share` of a slot's work is done. False: stop.
  bool worked(double share);
  void tile_done(tile_id tile, blob gradient, double loss);
  std::chrono::nanoseconds spent() const { return spent_; }

 private:
  template <class F>
  auto aside(F f);

  block_surroundings& around_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::chrono::nanoseconds spent_{};
  std::chrono::nanoseconds told_{};
  double slots_ = 0;
  std::uint64_t slots_told_ = 0;
};

// Where gradients go as they come: of slot k (counted within the block), stage by stage in reverse. The slots
// of a stage come in order.
class gradient_sink {
 public:
  virtual ~gradient_sink() = default;
  // Where the stage's gradient is to be written, float32[count of the stage].
  virtual float* into(std::uint32_t k, std::uint32_t stage) = 0;
  virtual void written(std::uint32_t k, std::uint32_t stage) = 0;
};

struct slot_place {
  slot_input input;
  std::unique_ptr<slot_values> values;
  slot_rows rows() const {
    return {input.noisy(), input.times(), input.labels(), input.target(), input.samples()};
  }
};

// Slots side by side through all stages and back, the first of them number k within its block; losses[i] is
// that of slot k + i. False: stopped or given up.
bool run_pass(denoiser& model, std::span<slot_place> places, std::uint32_t k, gradient_sink& sink,
              work_watch& watch, std::span<double> losses);

// Along the canonical tree. Precondition: a power of two of them.
double tree_sum(std::span<const double> losses);

// The parameters and tiles of a stage.
struct stage_part {
  stage_span span;
  std::uint32_t first_tile{};
  std::uint32_t end_tile{};
};
std::vector<stage_part> parts_of(const denoiser& model, const std::vector<tile>& tiles);

struct sum_of_slots {
  const std::vector<stage_part>& stages;
  const std::vector<tile>& tiles;
  std::uint32_t slots;  // of the block
  std::function<void(tile_id, blob)> done;
};

// Slots one by one, each with a whole gradient: the pending sums of the tree are whole, too. Tiles leave
// while the last slot is on its way back, as parts of one buffer.
class whole_gradients final : public gradient_sink {
 public:
  whole_gradients(sum_of_slots sum, buffer_pool& buffers) : sum_(std::move(sum)), buffers_(buffers) {}
  float* into(std::uint32_t k, std::uint32_t stage) override;
  void written(std::uint32_t k, std::uint32_t stage) override;

 private:
  const sum_of_slots sum_;
  buffer_pool& buffers_;
  std::vector<std::shared_ptr<float>> pending_;
};

// Slots side by side: a stage is summed as soon as its gradients are there, and leaves in buffers of tiles.
class stage_gradients final : public gradient_sink {
 public:
  stage_gradients(sum_of_slots sum, buffer_pool& stage_buffers, buffer_pool& tile_buffers)
      : sum_(std::move(sum)), stage_buffers_(stage_buffers), tile_buffers_(tile_buffers) {}
  float* into(std::uint32_t k, std::uint32_t stage) override;
  void written(std::uint32_t k, std::uint32_t stage) override;

 private:
  void leave(const stage_part& part);

  const sum_of_slots sum_;
  buffer_pool& stage_buffers_;
  buffer_pool& tile_buffers_;
  std::vector<std::shared_ptr<float>> pending_;
};

}  // namespace perdura::worker
