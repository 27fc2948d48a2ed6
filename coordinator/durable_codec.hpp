// What the coordinator writes down of a job, as bytes.
#pragma once

#include <span>
#include <string>

#include "actors/base/result.hpp"
#include "coordinator/logic/supervisor.hpp"

namespace perdura::coordinator {

enum class job_stage : std::uint8_t { waiting, active, finished, failed, cancelled };

// Beside the supervisor's state, which changes with every decision.
struct job_record {
  std::string id;
  std::string text;
  job_stage stage = job_stage::waiting;
  std::string why;  // it ended
  std::string final_hash;
  std::vector<tile> tiles;  // known once a worker has built its model
  std::uint32_t recoveries{};
};

std::string encode(const job_record& job);
std::string encode(const durable_state& state);
std::string encode(const verdict& v);
// Errors: corrupt, or of a later version.
result<job_record> decode_job(std::string_view bytes);
result<durable_state> decode_state(std::string_view bytes);
result<verdict> decode_verdict(std::string_view bytes);

}  // namespace perdura::coordinator
