// What a job would take on given workers before anything runs: who holds and computes what, memory by part,
// the time of a step. A model of what the worker does; nothing here measures.
#pragma once

#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

// Of the job's model, from `perdura-worker --describe JOB --measure`; times are those of one thread there.
struct job_costs {
  std::vector<tile> tiles;
  std::uint64_t process_bytes{};    // of a worker with the data set but without any state
  std::uint64_t slot_bytes{};       // values of a slot on its way, and its input
  std::uint64_t workspace_bytes{};  // shared by all slots
  double slot_seconds{};
  double reduce_seconds{};  // of one block's sum on one parameter
  double apply_seconds{};   // of one parameter
};

// At its height within a step, in bytes.
struct memory_forecast {
  std::uint64_t parameters{};   // as they are computed with, where they stay
  std::uint64_t master{};       // fp32 weights beside them, under bf16
  std::uint64_t moments{};      // two
  std::uint64_t average{};      // EMA
  std::uint64_t gradients{};    // being computed, kept until the verdict, reduced
  std::uint64_t partials{};     // of others, to be summed here
  std::uint64_t activations{};  // of the slots side by side
  std::uint64_t gathered{};     // stages that are here for a while
  std::uint64_t buffers{};      // copies for a snapshot and for others
  std::uint64_t process{};
  std::uint64_t total() const {
    return parameters + master + moments + average + gradients + partials + activations + gathered + buffers +
           process;
  }
};

struct member_forecast {
  std::uint32_t slots{};
  std::uint32_t blocks{};
  std::uint32_t tiles_owned{};
  std::uint32_t tiles_held{};
  memory_forecast memory;
  double compute_seconds{};
  std::uint64_t bytes_out{};  // a step
  std::uint64_t bytes_in{};
};

struct job_forecast {
  sharding_level level{};
  std::uint32_t replicas{};  // holders of a tile
  std::vector<plan_member> members;
  tile_map holders;
  std::vector<member_forecast> of;  // each member, in the same order
  double compute_seconds{};         // of the slowest member
  double step_seconds{};
  std::uint64_t bytes_on_wire{};  // a step, of all members
  std::uint64_t memory_most() const;
};

// `workers` sorted by incarnation, slots_per_second relative to the thread that was measured.
job_forecast forecast(const job_costs& costs, const job_config& job, sharding_level level,
                      const std::vector<candidate>& workers, double bytes_per_second);

// At each level in the order of sharding_level.
std::vector<job_forecast> forecast_all(const job_costs& costs, const job_config& job,
                                       const std::vector<candidate>& workers, double bytes_per_second);

// Where the job's settings gain nothing or cannot work with these workers, in sentences with the numbers.
// `names`: of the workers, for people.
std::vector<std::string> advice(const std::vector<job_forecast>& levels, const job_config& job,
                                const std::vector<candidate>& workers, const std::vector<std::string>& names);

}  // namespace perdura::coordinator
