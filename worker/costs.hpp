// What a job's numbers cost on one lane of this machine: what `perdura plan FILE` predicts from.
#pragma once

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

struct job_costs {
  std::uint64_t process_bytes{};    // of a worker beside what its trainer keeps; the data set is in it
  std::uint64_t slot_bytes{};       // values of a slot on its way, and its input
  std::uint64_t workspace_bytes{};  // shared by all slots
  double slot_seconds{};            // medians
  double reduce_seconds{};          // of one block's sum on one parameter
  double apply_seconds{};           // of one parameter
};

// Reads the data set, computes some slots and one step of the optimizer. Errors: as make_trainer.
result<job_costs> measure_costs(const job_config& job);

}  // namespace perdura::worker
