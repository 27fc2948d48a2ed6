#include "chaos/sim/oracle.hpp"

#include "worker/logic/outcome.hpp"

namespace perdura::sim {

oracle::oracle(const job_config& job, std::uint32_t tiles) : job_(job), tiles_(tiles) {
  states_.emplace_back();
  for (std::uint32_t t = 0; t < tiles; ++t) states_[0].tiles.push_back(initial_tile(t));
}

const oracle::state& oracle::at(step_number step) {
  while (states_.size() <= step.value) {
    const auto& last = states_.back();
    const step_number next(states_.size());
    state s;
    const auto parameters = fold(last.tiles);
    std::vector<vote_part> parts;
    for (std::uint32_t t = 0; t < tiles_; ++t) {
      const auto g = block_value(parameters, next, {0, job_.batch.slots}, t);
      s.gradients.push_back(g);
      parts.push_back({tile_id(t), norm2_of(g), true, loss_of(g)});
    }
    s.outcome = worker::conclude(job_, parts, last.outcome);
    for (std::uint32_t t = 0; t < tiles_; ++t)
      s.tiles.push_back(applied(last.tiles[t], s.gradients[t], s.outcome));
    states_.push_back(std::move(s));
  }
  return states_[step.value];
}

}  // namespace perdura::sim
