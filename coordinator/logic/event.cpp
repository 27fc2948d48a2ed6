#include "coordinator/logic/event.hpp"

namespace perdura::coordinator {

const char* to_string(event_kind k) {
  switch (k) {
    case event_kind::job_started: return "job_started";
    case event_kind::job_paused: return "job_paused";
    case event_kind::job_resumed: return "job_resumed";
    case event_kind::job_finished: return "job_finished";
    case event_kind::job_failed: return "job_failed";
    case event_kind::job_cancelled: return "job_cancelled";
    case event_kind::worker_joined: return "worker_joined";
    case event_kind::worker_refused: return "worker_refused";
    case event_kind::worker_lost: return "worker_lost";
    case event_kind::worker_fenced: return "worker_fenced";
    case event_kind::worker_left: return "worker_left";
    case event_kind::era_opened: return "era_opened";
    case event_kind::recovery_decided: return "recovery_decided";
    case event_kind::plan_started: return "plan_started";
    case event_kind::plan_proposed: return "plan_proposed";
    case event_kind::plan_effective: return "plan_effective";
    case event_kind::step_skipped: return "step_skipped";
    case event_kind::checkpoint_committed: return "checkpoint_committed";
    case event_kind::checkpoint_dropped: return "checkpoint_dropped";
    case event_kind::node_notice: return "node_notice";
    case event_kind::node_released: return "node_released";
    case event_kind::job_waits: return "job_waits";
    case event_kind::job_stopped: return "job_stopped";
    case event_kind::worker_given: return "worker_given";
    case event_kind::worker_taken: return "worker_taken";
    case event_kind::drain_asked: return "drain_asked";
    case event_kind::coordinator_started: return "coordinator_started";
    case event_kind::audit: return "audit";
    case event_kind::worker_draining: return "worker_draining";
    case event_kind::drain_blocked: return "drain_blocked";
    case event_kind::worker_slow: return "worker_slow";
    case event_kind::workers_apart: return "workers_apart";
    case event_kind::checkpoint_alarm: return "checkpoint_alarm";
    case event_kind::store_tended: return "store_tended";
  }
  return "unknown";
}

}  // namespace perdura::coordinator
