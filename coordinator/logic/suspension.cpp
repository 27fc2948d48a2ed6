// Workers that are given to other jobs: one that has let go of all, or all of them.
#include <algorithm>

#include "actors/base/check.hpp"
#include "coordinator/logic/supervisor.hpp"

namespace perdura::coordinator {

durable_state without_workers(durable_state state) {
  state.recovery.reset();
  state.started = false;
  state.current = {};
  state.pending.reset();
  state.releasing.clear();
  state.draining.clear();
  state.sequence = 0;
  state.members_most = 0;
  state.wanted = plan_action::train;
  return state;
}

void supervisor::suspend(time_point now) {
  state_.wanted = plan_action::pause;
  snapshot_wanted_ = true;
  look_ = true;
  persist();
  propose_if_wanted(now);
}

bool supervisor::is_at_rest() const {
  if (stage_ == stage::waiting) return true;
  if (stage_ != stage::running || state_.pending || !state_.releasing.empty()) return false;
  if (state_.current.action != plan_action::pause || !state_.newest) return false;
  // A pause that a recovery brought has no snapshot, and no step follows that could be saved.
  if (!state_.current.snapshot) return true;
  return restore_.source.step == state_.newest->step && restore_.source.timeline == state_.timeline;
}

void supervisor::dismissed(const incarnation& who) {
  PERDURA_CHECK(!is_involved(who), "who is let go holds nothing");
  const bool was_draining = is_draining(who);
  workers_.erase(who);
  forget_drain(who);
  slow_.forget(who);
  link_record_.forget(who);
  look_ = true;
  if (was_draining) persist();
}

}  // namespace perdura::coordinator
