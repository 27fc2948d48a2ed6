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
  bool on_hold = false;   // a person has paused it
  bool stopping = false;  // it is to give up all its workers, and wait
};

// A node or worker that a person, or its machine, wants to be used no more. Of that life alone: an agent that
// is started again is used.
struct drain_entry {
  incarnation who;
  std::string name;
  std::uint64_t gone_unix_ms{};  // 0: no deadline
  std::string why;
  bool operator==(const drain_entry&) const = default;
};

std::string encode(const job_record& job);
std::string encode(const durable_state& state);
std::string encode(const verdict& v);
std::string encode(const std::vector<drain_entry>& drains);
// Errors: corrupt, or of a later version.
result<job_record> decode_job(std::string_view bytes);
result<durable_state> decode_state(std::string_view bytes);
result<verdict> decode_verdict(std::string_view bytes);
result<std::vector<drain_entry>> decode_drains(std::string_view bytes);

}  // namespace perdura::coordinator
