// Each decision has its reason: an entry of the event log, a metric's label, a line on the console.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace perdura::coordinator {

enum class event_kind : std::uint8_t {
  job_started,
  job_paused,
  job_resumed,
  job_finished,
  job_failed,
  job_cancelled,
  worker_joined,
  worker_refused,
  worker_lost,
  worker_fenced,
  worker_left,
  era_opened,
  recovery_decided,
  plan_started,
  plan_proposed,
  plan_effective,
  step_skipped,
  checkpoint_committed,
  checkpoint_dropped,
  job_waits,
  job_stopped,
  worker_given,
  worker_taken,
  drain_asked,
  node_notice,
  node_released,
  coordinator_started,
  audit,
  worker_draining,
  drain_blocked,
  worker_slow,
  workers_apart,
  checkpoint_alarm,
  store_tended,
};
const char* to_string(event_kind k);

struct event {
  event_kind kind{};
  std::string subject;  // a worker, a plan, a step ...
  std::string reason;   // one sentence with the numbers that led to it
  std::vector<std::pair<std::string, std::string>> fields;
};

}  // namespace perdura::coordinator
