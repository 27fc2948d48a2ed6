// Weights from other programs' files, as a checkpoint of step 0: parameters and their average from the file,
// the optimizer's moments zero. A job of the same model starts from it as from its own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"
#include "storage/interchange/names.hpp"
#include "storage/layout.hpp"

namespace perdura::interchange {

struct import_options {
  std::filesystem::path from;   // a file, or a folder as export makes it; `transformer` in it is looked into
  std::filesystem::path store;  // made if it is not there
  std::string job;              // as whose checkpoint
  std::string job_text;         // its job file,
  model_config model;           // what that says of the model,
  // and how a worker lays that model out.
  std::vector<tile> tiles;
  std::vector<storage::tensor_entry> tensors;
  incarnation who;  // new: names the packs
  std::string created_by;
  std::uint64_t created_unix_ms{};
};

struct imported {
  storage::checkpoint_key key;
  format as{};
  std::uint64_t tensors{};
  std::uint64_t bytes{};       // of the checkpoint, decoded
  bool has_fixed_positions{};  // the file brings none: diffusers' own were taken
};

// Whether the names are ours or diffusers' is seen from the file; element types may be F32, F64, F16 and
// BF16. Errors: invalid_argument names every tensor that is missing, unknown or of another shape or type, one
// a line; corrupt where copies of an embedding differ or values are not finite; already_exists: the job has a
// checkpoint of step 0. On error there is no checkpoint.
result<imported> import_weights(const import_options& options);

}  // namespace perdura::interchange
