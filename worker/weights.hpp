// Which checkpoint a person means, and its weights as the flat vector that a denoiser is bound to.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include "actors/base/result.hpp"
#include "storage/manifest.hpp"

namespace perdura::worker {

struct checkpoint_choice {
  std::filesystem::path path;       // a store, a data folder with a store in it, or a manifest in a store
  std::string job;                  // empty: the one whose newest checkpoint is the newest
  std::optional<step_number> step;  // default: the newest
};

struct chosen_checkpoint {
  std::filesystem::path store;
  storage::manifest contents;
};

// Errors say what is there instead: not_found, corrupt, invalid_argument.
result<chosen_checkpoint> choose_checkpoint(const checkpoint_choice& choice);

// Fills `to` with one array of all tiles, every hash verified. Errors: corrupt and not_found, with tile, file
// and the steps that the job has otherwise; version_mismatch where the sizes are not the model's.
result<void> load_weights(const chosen_checkpoint& from, storage::chunk_kind array, std::span<float> to);

}  // namespace perdura::worker
