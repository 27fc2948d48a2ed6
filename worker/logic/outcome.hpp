// The numbers of a step that depend on all tiles: norm, clipping, learning rate, skipping. A pure function of
// the votes and of the last outcome, so that every member concludes the same bits.
#pragma once

#include <span>

#include "actors/base/config.hpp"
#include "actors/base/frames.hpp"
#include "actors/base/plan.hpp"

namespace perdura::worker {

// Linear warm-up, constant, linear decay to zero over the last `decay_fraction` of `steps`.
float learning_rate(const optimizer_config& optimizer, std::uint64_t steps, std::uint64_t optimizer_time);

// `parts`: one per tile, in the order of the tiles. `last`: outcome of the step before.
step_outcome conclude(const job_config& job, std::span<const vote_part> parts, const step_outcome& last);

}  // namespace perdura::worker
