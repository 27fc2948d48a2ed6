// A checkpoint's weights as files that other programs read.
//   diffusers:  FOLDER/transformer/{config.json, diffusion_pytorch_model.safetensors, perdura_dit.py}
//   plain:      FOLDER/model.safetensors, names and shapes as ours
// and FOLDER/job.toml, the job file: with it the folder can be imported again.
#pragma once

#include <cstdint>
#include <filesystem>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/interchange/names.hpp"

namespace perdura::interchange {

struct export_options {
  std::filesystem::path folder;  // made if it is not there
  format as = format::diffusers;
  storage::chunk_kind weights = storage::chunk_kind::parameters;  // or ema
};

struct exported {
  std::filesystem::path file;  // the weights
  std::uint64_t tensors{};
  std::uint64_t bytes{};
};

// `model` as the checkpoint's job file says it. Never holds more than a few tiles in memory; every byte that
// is read is verified. Errors: already_exists, nothing is overwritten; invalid_argument and not_found say
// what the checkpoint or the model lacks; corrupt as the reader finds it. The weights' file is there only on
// success.
result<exported> export_weights(storage::checkpoint_reader& from, const model_config& model,
                                const export_options& options);

}  // namespace perdura::interchange
