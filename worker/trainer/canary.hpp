// A fixed slot on fixed parameters, and an optimizer step with its gradient: the hash of it all tells whether
// two machines give the same bits. Goes stage by stage, so that it needs no more memory than training.
#pragma once

#include <span>

#include "worker/trainer/block_pass.hpp"

namespace perdura::worker {

// `place` holds the canary's input (slot_input::draw_canary). The model is bound to parameters that are gone
// afterwards: bind it again.
std::uint64_t run_canary(const job_config& job, denoiser& model, const std::vector<stage_part>& stages,
                         const std::vector<tile>& tiles, std::span<slot_place> place,
                         buffer_pool& stage_buffers);

}  // namespace perdura::worker
