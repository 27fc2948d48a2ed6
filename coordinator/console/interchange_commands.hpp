// `perdura ckpt export` and `perdura ckpt import`: weights for other programs, and from them. Need no
// coordinator.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/plan.hpp"
#include "coordinator/console/exit_code.hpp"
#include "coordinator/console/render.hpp"

namespace perdura::console {

struct interchange_options {
  std::string checkpoint;  // of export
  bool ema = false;
  std::string format = "diffusers";
  std::string folder;
  std::string job_file;  // of import
  std::string store;     // of both; empty: as configured
  std::string as;
  const CLI::App* export_command = nullptr;
  const CLI::App* import_command = nullptr;
};

// Adds both to `ckpt`.
void declare_interchange(CLI::App& ckpt, interchange_options& options, bool& json);
// None: neither was given.
std::optional<exit_code> run_interchange(const interchange_options& options, renderer& view);

struct model_tables {
  std::vector<tile> tiles;
  std::vector<named_tensor> tensors;
};
// Of what `perdura-worker --describe JOB --json` prints. Errors: corrupt.
result<model_tables> parse_tables(const std::string& json);

}  // namespace perdura::console
