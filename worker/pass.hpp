// A block being computed, seen from the lane: what it waits for, what is done in between, where its results
// go. Where parameters are sharded they are asked for one stage ahead of their use and dropped behind it, in
// the forward pass and again in the backward pass, so that at most three stages are here at a time.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "worker/lane.hpp"
#include "worker/spans.hpp"
#include "worker/trainer/trainer.hpp"

namespace perdura::worker {

// Versions of the parameters in memory, tile by tile; the lane's alone.
class resident_parameters {
 public:
  explicit resident_parameters(std::size_t tiles) : versions_(tiles) {}
  void set(tile_id tile, step_number version) { versions_[tile.value] = version; }
  void drop(tile_id tile) { versions_[tile.value].reset(); }
  std::optional<step_number> version(tile_id tile) const { return versions_[tile.value]; }
  bool has(tile_id tile, step_number version) const { return versions_[tile.value] == version; }

  // Parameters that come in when no pass waits for them are not taken: nobody would drop them again.
  std::function<bool(tile_id)> is_wanted = [](tile_id) { return false; };
  std::function<void(tile_id)> arrived = [](tile_id) {};

 private:
  std::vector<std::optional<step_number>> versions_;
};

class pass final : public block_surroundings {
 public:
  struct events {
    std::function<void(tile_id)> wanted;                            // its parameters
    std::function<void(tile_id, blob gradient, double loss)> done;  // its gradient, summed over the block
    std::function<void(std::chrono::nanoseconds)> slot_done;
  };
  // `gathers`: parameters are sharded; else all of them are here.
  pass(lane& on, trainer& numbers, resident_parameters& resident, step_number step, bool gathers,
       const std::atomic<bool>& stopped, events tell, std::shared_ptr<spans> trace);
  ~pass() override;

  bool stop() override { return stopped_; }
  bool acquire(std::uint32_t stage) override;
  void release(std::uint32_t stage) override;
  void breathe() override { lane_.run_waiting(); }
  void slot_done(std::chrono::nanoseconds spent) override { tell_.slot_done(spent); }
  void tile_done(tile_id tile, blob gradient, double loss) override {
    tell_.done(tile, std::move(gradient), loss);
  }

 private:
  bool is_here(std::uint32_t stage) const;
  void ask_for(std::uint32_t stage);
  bool is_near(std::uint32_t stage) const;
  void trace_gathered(std::uint32_t stage);

  lane& lane_;
  trainer& numbers_;
  resident_parameters& resident_;
  const step_number step_;
  const bool gathers_;
  const std::atomic<bool>& stopped_;
  const events tell_;
  const std::shared_ptr<spans> trace_;
  std::vector<std::vector<tile_id>> stages_;
  std::vector<std::uint32_t> order_;  // stages as the two passes take them
  std::size_t at_ = 0;                // in order_, of the stage acquired last, plus one
  std::vector<spans::time_point> asked_;
  std::vector<bool> asking_;
  spans::time_point acquired_{};
};

}  // namespace perdura::worker
