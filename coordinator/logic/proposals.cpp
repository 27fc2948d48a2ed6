// Plans that take effect at a verdict: joins, drains, pauses, snapshots. One at a time, the next only when
// all leavers of the last have let go.
#include <algorithm>
#include <utility>

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
  const auto before = std::move(state_.current);
  state_.current = std::move(state_.pending->next);
  state_.releasing = std::move(state_.pending->leavers);
  std::erase_if(state_.releasing, [&](const auto& who) { return is_fenced(who); });
  std::erase_if(released_early_, [&](const auto& r) {
    return r.plan != state_.current.id || std::erase(state_.releasing, r.who) == 0;
  });
  state_.pending.reset();
  state_.members_most =
      std::max(state_.members_most, static_cast<std::uint32_t>(state_.current.members.size()));
  look_ = true;
  persist();
  note(event_kind::plan_effective, to_string(state_.current.id),
       "named by the verdict of step " + to_string(state_.newest->step));
  for (const auto& r : std::exchange(released_early_, {})) {
    send(r.who, released_ack{r.plan});
    note(event_kind::worker_left, name_of(r.who), "it has handed over all that it held",
         {{"incarnation", to_string(r.who)}});
  }
  for (const auto& m : state_.current.members)
    if (!before.has_member(m.who))
      note(event_kind::worker_joined, name_of(m.who), "its copies are complete",
           {{"incarnation", to_string(m.who)}});
  if (state_.current.action == plan_action::pause) note(event_kind::job_paused, job_.name, "as asked");
}

void supervisor::on_released(const released_report& r, time_point now) {
  // After a restart a leaver may be heard before anybody says that its plan has taken effect.
  if (state_.pending && state_.pending->next.id == r.plan) {
    released_early_.push_back(r);
    return;
  }
  send(r.who, released_ack{r.plan});
  if (std::erase(state_.releasing, r.who) == 0) return;
  if (const auto d = drains_.find(r.who); d != drains_.end()) d->second.deadline.reset();  // in time
  look_ = true;
  persist();
  note(event_kind::worker_left, name_of(r.who), "it has handed over all that it held",
       {{"incarnation", to_string(r.who)}});
  propose_if_wanted(now);
}

supervisor::intended supervisor::intended_members(bool may_join, time_point now) {
  intended who;
  for (const auto& m : state_.current.members) {
    (is_draining(m.who) ? who.leavers : who.members).push_back(m.who);
    who.is_urgent = who.is_urgent || is_urgent(m.who, now);
  }
  // With its time nearly over a leaver waits for no newcomer's copies, unless nobody else is there.
  if (may_join && !(who.is_urgent && !who.members.empty())) {
    const auto able = candidates(now);
    const auto wanted = members_wanted(able.size());
    for (const auto& w : able) {
      if (who.members.size() >= wanted) break;
      if (is_member(w)) continue;
      who.members.push_back(w);
      ++who.joining;
    }
  }
  if (who.members.empty()) {
    // The last ones cannot leave: somebody has to hold the state.
    drain_is_blocked(now);
    std::swap(who.members, who.leavers);
    who.is_urgent = false;
  } else {
    drain_blocked_ = false;
  }
  std::sort(who.members.begin(), who.members.end());
  return who;
}

bool supervisor::lacks_copies(const plan& p, std::size_t members) const {
  const auto wanted = options_.replicas == 0 ? members : std::min<std::size_t>(options_.replicas, members);
  return std::any_of(p.holders.begin(), p.holders.end(), [&](const auto& h) { return h.size() < wanted; });
}

void supervisor::fill_plan(proposal_order& p, const intended& who, bool new_blocks) const {
  const auto able = capacities(who.members);
  p.next.members = new_blocks ? plan_blocks(job_.batch.slots, able, largest_block(), state_.current.members)
                              : state_.current.members;
  const auto before = holders_among(state_.current, p.next.members);
  p.next.holders = plan_tiles(weights(), able, options_.replicas, before);
  if (!who.is_urgent) return;
  for (std::uint32_t t = 0; t < options_.tiles; ++t) {
    auto& holders = p.next.holders[t];
    const auto& had = before[t];
    if (had.empty()) {
      holders.resize(1);
      continue;
    }
    std::erase_if(holders, [&](const auto m) { return std::find(had.begin(), had.end(), m) == had.end(); });
    if (holders.empty()) holders = had;  // a move to others would be a copy, too
  }
}

// What each new holder copies, and from whom; first what only leavers hold.
std::vector<tile_move> supervisor::moves_of(const proposal_order& p) const {
  label_map labels;
  for (const auto& [who, w] : workers_) labels[who] = w.at;
  auto moves = tile_moves(state_.current, p.next, labels, options_.weights);
  std::stable_partition(moves.begin(), moves.end(), [&](const tile_move& m) {
    const auto& holders = state_.current.holders[m.tile.value];
    return std::all_of(holders.begin(), holders.end(), [&](const auto index) {
      return !p.next.has_member(state_.current.members[index].who);
    });
  });
  return moves;
}

std::optional<proposal_order> supervisor::next_proposal(time_point now, std::string& why) {
  if (state_.current.action == plan_action::pause) return std::nullopt;  // no verdict could name it
  const bool pauses = state_.wanted == plan_action::pause;
  const auto who = intended_members(!pauses && !snapshot_wanted_, now);
  const bool incomplete = lacks_copies(state_.current, who.members.size()) && !who.is_urgent;
  const bool changes = who.joining > 0 || !who.leavers.empty();
  const bool moves_blocks = !move_blocks_.empty();
  if (!changes && !pauses && !snapshot_wanted_ && !incomplete && !moves_blocks) return std::nullopt;

  proposal_order p;
  p.timeline = state_.timeline;
  p.base = state_.current.id;
  p.leavers = who.leavers;
  p.next.id = {state_.at, state_.sequence + 1};
  p.next.action = pauses ? plan_action::pause : plan_action::train;
  p.next.snapshot = snapshot_wanted_;
  if (changes || incomplete) {
    fill_plan(p, who, changes || moves_blocks);
  } else {
    p.next.members =
        moves_blocks ? plan_blocks(job_.batch.slots, capacities(who.members)) : state_.current.members;
    p.next.holders = state_.current.holders;
  }
  p.moves = moves_of(p);
  pending_is_urgent_ = who.is_urgent;
  why = std::to_string(who.joining) + " join, " + std::to_string(who.leavers.size()) + " leave" +
        (pauses ? ", then pause" : "") + (snapshot_wanted_ ? ", with a snapshot" : "") +
        (incomplete ? ", copies are restored" : "") + (moves_blocks ? ", blocks follow the speeds" : "") +
        "; " + std::to_string(p.moves.size()) + " tiles to copy";
  return p;
}

void supervisor::propose_if_wanted(time_point now) {
  if (stage_ != stage::running || state_.pending) return;
  if (!state_.releasing.empty() && !broken(rule::await_release)) return;
  // A paused plan has no verdict that could name another: resuming takes an era.
  if (state_.current.action == plan_action::pause && state_.wanted == plan_action::train)
    return open_era("resume", "the job is resumed", now);
  if (state_.newest && state_.newest->step.value + 1 >= job_.steps) return;  // no verdict is left to name it
  follow_advice(now);
  if (!look_) return;
  look_ = false;
  std::string why;
  auto p = next_proposal(now, why);
  if (!p) return;
  const auto id = p->next.id;
  state_.pending = std::move(*p);
  learn_deadline_.reset();
  state_.sequence = id.sequence;
  snapshot_wanted_ = false;
  move_blocks_.clear();
  if (!broken(rule::persist_proposal)) persist();
  note(event_kind::plan_proposed, to_string(id), why);
  const auto& pending = *state_.pending;
  auto everybody = pending.leavers;
  for (const auto& m : pending.next.members) everybody.push_back(m.who);
  std::sort(everybody.begin(), everybody.end());
  send_to_all(everybody, pending);
}

// ---- commands

void supervisor::pause(time_point now) {
  state_.wanted = plan_action::pause;
  look_ = true;
  persist();
  propose_if_wanted(now);
}

void supervisor::resume(time_point now) {
  if (state_.wanted == plan_action::train) return;
  state_.wanted = plan_action::train;
  look_ = true;
  persist();
  note(event_kind::job_resumed, job_.name, "as asked");
  propose_if_wanted(now);
}

void supervisor::cancel(const std::string& why) { end(event_kind::job_cancelled, why, {}); }

void supervisor::snapshot_now(time_point now) {
  snapshot_wanted_ = true;
  look_ = true;
  propose_if_wanted(now);
}

}  // namespace perdura::coordinator
