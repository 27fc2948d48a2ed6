// What must come out: the run of one worker that never failed, computed as far as it is asked for.
#pragma once

#include <vector>

#include "actors/base/config.hpp"
#include "chaos/sim/toy.hpp"

namespace perdura::sim {

class oracle {
 public:
  oracle(const job_config& job, std::uint32_t tiles);
  const toy_tile& tile(step_number step, std::uint32_t tile) { return at(step).tiles[tile]; }
  const step_outcome& outcome(step_number step) { return at(step).outcome; }
  std::uint64_t gradient(step_number step, std::uint32_t tile) { return at(step).gradients[tile]; }

 private:
  struct state {
    std::vector<toy_tile> tiles;
    std::vector<std::uint64_t> gradients;
    step_outcome outcome;
  };
  const state& at(step_number step);

  job_config job_;
  std::uint32_t tiles_;
  std::vector<state> states_;
};

}  // namespace perdura::sim
