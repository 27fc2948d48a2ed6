// Plans that take effect at a verdict: joins, drains, pauses, snapshots. One at a time, the next only when
// all leavers of the last have let go.
#include <algorithm>

#include "actors/base/check.hpp"
#include "coordinator/logic/planner.hpp"
#include "coordinator/logic/supervisor.hpp"

namespace perdura::coordinator {

void supervisor::on_verdict(const verdict_report& r, time_point now) {
  const auto& v = r.observed;
  if (v.timeline != state_.timeline) return;
  if (state_.newest && v.step == state_.newest->step)
    PERDURA_CHECK(v.outcome == state_.newest->outcome, "two outcomes of one step");
  if (!state_.newest || v.step > state_.newest->step) {
    state_.newest = v;
    out_.push_back(effect::record{v});
    if (v.outcome.skipped)
      note(event_kind::step_skipped, to_string(v.step),
           "a gradient was not finite; " + std::to_string(v.outcome.skips_in_a_row) + " in a row");
    if (job_.elastic.max_skips > 0 && v.outcome.skips_in_a_row >= job_.elastic.max_skips)
      return end(
          event_kind::job_failed,
          std::to_string(v.outcome.skips_in_a_row) + " steps in a row had gradients that are not finite", {});
  }
  if (state_.pending && v.next_plan == state_.pending->next.id) take_effect();
  propose_if_wanted(now);
}

void supervisor::take_effect() {
  const auto before = state_.current;
  state_.current = state_.pending->next;
  state_.releasing = state_.pending->leavers;
  std::erase_if(state_.releasing, [&](const auto& who) { return is_fenced(who); });
  state_.pending.reset();
  persist();
  note(event_kind::plan_effective, to_string(state_.current.id),
       "named by the verdict of step " + to_string(state_.newest->step));
  for (const auto& m : state_.current.members)
    if (!before.has_member(m.who))
      note(event_kind::worker_joined, name_of(m.who), "its copies are complete",
           {{"incarnation", to_string(m.who)}});
  if (state_.current.action == plan_action::pause) note(event_kind::job_paused, job_.name, "as asked");
}

void supervisor::on_released(const released_report& r, time_point now) {
  send(r.who, released_ack{r.plan});
  if (std::erase(state_.releasing, r.who) == 0) return;
  persist();
  note(event_kind::worker_left, name_of(r.who), "it has handed over all that it held");
  propose_if_wanted(now);
}

std::optional<proposal_order> supervisor::next_proposal(std::string& why) const {
  std::vector<candidate> members;
  std::vector<incarnation> leavers;
  std::size_t joining = 0;
  for (const auto& m : state_.current.members) {
    if (is_draining(m.who))
      leavers.push_back(m.who);
    else
      members.push_back({m.who});
  }
  const bool pauses = state_.wanted == plan_action::pause && state_.current.action != plan_action::pause;
  if (!pauses && !snapshot_wanted_)
    for (const auto& [who, w] : workers_)
      if (!is_member(who) && !is_draining(who)) {
        members.push_back({who});
        ++joining;
      }
  // The last one cannot leave: somebody has to hold the state.
  if (members.empty()) return std::nullopt;
  bool incomplete = false;
  const auto wanted =
      options_.replicas == 0 ? members.size() : std::min<std::size_t>(options_.replicas, members.size());
  for (const auto& h : state_.current.holders) incomplete = incomplete || h.size() < wanted;
  if (!joining && leavers.empty() && !pauses && !snapshot_wanted_ && !incomplete) return std::nullopt;
  if (state_.current.action == plan_action::pause) return std::nullopt;  // no verdict could name it

  proposal_order p;
  p.timeline = state_.timeline;
  p.base = state_.current.id;
  p.leavers = leavers;
  p.next.id = {state_.at, state_.sequence + 1};
  p.next.action = state_.wanted == plan_action::pause ? plan_action::pause : plan_action::train;
  p.next.snapshot = snapshot_wanted_;
  if (joining == 0 && leavers.empty() && !incomplete) {
    p.next.members = state_.current.members;
    p.next.holders = state_.current.holders;
  } else {
    std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.who < b.who; });
    p.next.members = plan_blocks(job_.batch.slots, members, 0, state_.current.members);
    p.next.holders = plan_tiles(std::vector<std::uint32_t>(options_.tiles, 1), members, options_.replicas,
                                holders_among(state_.current, p.next.members));
  }
  for (std::uint32_t t = 0; t < p.next.holders.size(); ++t)
    for (const auto index : p.next.holders[t])
      if (const auto& who = p.next.members[index].who; !state_.current.holds(who, tile_id(t)))
        p.moves.push_back({tile_id(t), state_.current.owner(tile_id(t)), who});
  why = std::to_string(joining) + " join, " + std::to_string(leavers.size()) + " leave" +
        (pauses ? ", then pause" : "") + (snapshot_wanted_ ? ", with a snapshot" : "") +
        (incomplete ? ", copies are restored" : "");
  return p;
}

void supervisor::propose_if_wanted(time_point now) {
  if (stage_ != stage::running || state_.pending) return;
  if (!state_.releasing.empty() && !broken(rule::await_release)) return;
  // A paused plan has no verdict that could name another: resuming takes an era.
  if (state_.current.action == plan_action::pause && state_.wanted == plan_action::train)
    return open_era("resume", "the job is resumed", now);
  if (state_.newest && state_.newest->step.value + 1 >= job_.steps) return;  // no verdict is left to name it
  std::string why;
  auto p = next_proposal(why);
  if (!p) return;
  state_.pending = *p;
  learn_deadline_.reset();
  state_.sequence = p->next.id.sequence;
  snapshot_wanted_ = false;
  if (!broken(rule::persist_proposal)) persist();
  note(event_kind::plan_proposed, to_string(p->next.id), why);
  std::set<incarnation> everybody{p->leavers.begin(), p->leavers.end()};
  for (const auto& m : p->next.members) everybody.insert(m.who);
  for (const auto& who : everybody) send(who, *p);
}

// ---- commands

void supervisor::pause(time_point now) {
  state_.wanted = plan_action::pause;
  persist();
  propose_if_wanted(now);
}

void supervisor::resume(time_point now) {
  if (state_.wanted == plan_action::train) return;
  state_.wanted = plan_action::train;
  persist();
  note(event_kind::job_resumed, job_.name, "as asked");
  propose_if_wanted(now);
}

void supervisor::cancel(const std::string& why) { end(event_kind::job_cancelled, why, {}); }

void supervisor::snapshot_now(time_point now) {
  snapshot_wanted_ = true;
  propose_if_wanted(now);
}

void supervisor::drain(const incarnation& who, time_point now) {
  if (!workers_.contains(who) || is_draining(who)) return;
  state_.draining.push_back(who);
  persist();
  propose_if_wanted(now);
}

}  // namespace perdura::coordinator
