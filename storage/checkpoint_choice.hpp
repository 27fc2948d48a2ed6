// Which checkpoint a person means.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "actors/base/result.hpp"
#include "storage/manifest.hpp"

namespace perdura::storage {

struct checkpoint_choice {
  std::filesystem::path path;       // a store, a data folder with a store in it, or a manifest in a store
  std::string job;                  // empty: the one whose newest checkpoint is the newest
  std::optional<step_number> step;  // default: the newest
};

struct chosen_checkpoint {
  std::filesystem::path store;
  manifest contents;
};

// Errors say what is there instead: not_found, corrupt, invalid_argument.
result<chosen_checkpoint> choose_checkpoint(const checkpoint_choice& choice);

// The job's other checkpoints, as the end of an error's line.
std::string others_than(const chosen_checkpoint& from);

}  // namespace perdura::storage
