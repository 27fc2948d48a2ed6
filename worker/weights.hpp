// The weights of a checkpoint as the flat vector that a denoiser is bound to.
#pragma once

#include <span>

#include "actors/base/result.hpp"
#include "storage/checkpoint_choice.hpp"

namespace perdura::worker {

using storage::checkpoint_choice;
using storage::choose_checkpoint;
using storage::chosen_checkpoint;

// Fills `to` with one array of all tiles, every hash verified. Errors: corrupt and not_found, with tile, file
// and the steps that the job has otherwise; version_mismatch where the sizes are not the model's.
result<void> load_weights(const chosen_checkpoint& from, storage::chunk_kind array, std::span<float> to);

}  // namespace perdura::worker
