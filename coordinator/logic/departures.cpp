// Who may be a member, who steps in and who has to go: drains, spares, workers that are slow.
#include <algorithm>

#include "coordinator/logic/planner.hpp"
#include "coordinator/logic/supervisor.hpp"

namespace perdura::coordinator {

namespace {
constexpr std::chrono::hours probation_max{1};
}

// ---- who may be a member

bool supervisor::may_join(const incarnation& who, time_point now) const {
  if (is_draining(who)) return false;
  if (apart_.empty()) return true;
  const auto& node = workers_.at(who).hello.node;
  for (const auto& m : state_.current.members) {
    const auto other = workers_.find(m.who);
    if (other == workers_.end()) continue;
    const auto known = apart_.find(link_between(node, other->second.hello.node));
    if (known != apart_.end() && now < known->second.until) return false;
  }
  return true;
}

// Those that are fastest, as far as is known, first; then those that came first.
std::vector<incarnation> supervisor::candidates(time_point now) const {
  struct able {
    double speed;
    time_point since;
    incarnation who;
  };
  std::vector<able> all;
  const double usual = paces().usual();
  for (const auto& [who, w] : workers_)
    if (may_join(who, now)) all.push_back({paces().slots_per_second(who).value_or(usual), w.since, who});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    if (a.speed != b.speed) return a.speed > b.speed;
    return a.since != b.since ? a.since < b.since : a.who < b.who;
  });
  std::vector<incarnation> found;
  found.reserve(all.size());
  for (const auto& a : all) found.push_back(a.who);
  return found;
}

// Asked at every hello, of as many workers as there are.
std::size_t supervisor::able_to_join(time_point now) const {
  if (!apart_.empty()) return candidates(now).size();
  return workers_.size() -
         static_cast<std::size_t>(std::count_if(drains_.begin(), drains_.end(),
                                                [&](const auto& d) { return workers_.contains(d.first); }));
}

// Of `able` workers so many are members: all but the spares, but never fewer than there were, for that is
// what spares are for.
std::size_t supervisor::members_wanted(std::size_t able) const {
  const auto& e = job_.elastic;
  std::size_t wanted = able > e.spares ? able - e.spares : 0;
  wanted = std::max<std::size_t>({wanted, state_.members_most, e.min_workers, 1});
  if (e.max_workers > 0) wanted = std::min<std::size_t>(wanted, e.max_workers);
  return std::min(wanted, able);
}

std::vector<candidate> supervisor::capacities(const std::vector<incarnation>& who) const {
  std::vector<candidate> able;
  able.reserve(who.size());
  const double usual = paces().usual();
  for (const auto& w : who) {
    auto& a = able.emplace_back();
    a.who = w;
    a.slots_per_second = paces().slots_per_second(w).value_or(usual);
    if (const auto known = workers_.find(w); known != workers_.end()) a.at = known->second.at;
  }
  return able;
}

// A block is one pass over the stages where gradients or parameters are sharded.
std::uint32_t supervisor::largest_block() const {
  return level_of(job_) >= sharding_level::gradients ? job_.batch.pass_slots : 0;
}

std::vector<std::uint32_t> supervisor::weights() const {
  return options_.weights.empty() ? std::vector<std::uint32_t>(options_.tiles, 1) : options_.weights;
}

bool supervisor::is_spare(const incarnation& who) const {
  return workers_.contains(who) && !is_involved(who) && !is_draining(who);
}

// ---- drains

void supervisor::record_drains() {
  state_.draining.clear();
  for (const auto& [who, d] : drains_) state_.draining.push_back(d.record);
  persist();
}

void supervisor::forget_drain(const incarnation& who) {
  if (drains_.erase(who) == 0) return;
  std::erase_if(state_.draining, [&](const auto& d) { return d.who == who; });
}

std::optional<std::chrono::milliseconds> supervisor::time_left(const incarnation& who, time_point now) const {
  const auto d = drains_.find(who);
  if (d == drains_.end() || !d->second.deadline) return std::nullopt;
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::duration_cast<std::chrono::milliseconds>(*d->second.deadline - now));
}

void supervisor::drain(const std::vector<incarnation>& who, std::optional<std::chrono::milliseconds> within,
                       const std::string& why, time_point now) {
  if (stage_ == stage::ended) return;
  bool changed = false;
  for (const auto& w : who) {
    if (is_fenced(w)) continue;
    const auto deadline = within ? std::optional(now + *within) : std::nullopt;
    const auto [it, is_new] = drains_.try_emplace(w);
    auto& d = it->second;
    const bool is_earlier = deadline && (!d.deadline || *deadline < *d.deadline);
    if (!is_new && !is_earlier && !d.record.is_slow) continue;
    if (is_new || is_earlier) d.asked = now;
    if (is_earlier) d.deadline = deadline;
    d.back_at.reset();
    // A deadline of no time at all is one nevertheless.
    d.record = {w, within ? std::max<std::uint64_t>(1, static_cast<std::uint64_t>(within->count())) : 0,
                false, why};
    changed = true;
    note(event_kind::worker_draining, name_of(w),
         why + (within ? "; it is gone in " + std::to_string(within->count()) + " ms" : ""),
         {{"incarnation", to_string(w)}});
  }
  if (!changed) return;
  record_drains();
  look_ = true;
  drain_blocked_ = false;
  propose_if_wanted(now);
}

// Half of its time is over: what has not been copied by then is left, but for what nobody else holds.
bool supervisor::is_urgent(const incarnation& who, time_point now) const {
  const auto d = drains_.find(who);
  if (d == drains_.end() || !d->second.deadline) return false;
  return now - d->second.asked >= (*d->second.deadline - d->second.asked) / 2;
}

void supervisor::watch_drains(time_point now) {
  std::vector<incarnation> gone, back;
  bool urgent = false;
  for (const auto& [who, d] : drains_) {
    if (d.back_at && now >= *d.back_at && !is_involved(who)) back.push_back(who);
    if (!d.deadline || !is_involved(who)) continue;
    if (now >= *d.deadline) gone.push_back(who);
    urgent = urgent || is_urgent(who, now);
  }
  for (const auto& who : back) forget_drain(who);
  if (!back.empty()) {
    look_ = true;
    persist();
  }
  for (const auto& who : gone)
    lost(who, "it was to be gone by now (" + drains_.at(who).record.why + ") and had not handed all over",
         now);
  if (!urgent || stage_ != stage::running) return;
  if (!state_.pending) {
    look_ = true;
    return;
  }
  // A learner that is still copying must not cost the leaver's state. A new era costs no slots: those under
  // way go on, and what the learner has copied it keeps.
  if (!pending_is_urgent_ && !state_.pending->moves.empty())
    open_era("drain",
             "a worker's time to leave is half over, and plan " + to_string(state_.pending->next.id) +
                 " still waits for copies",
             now);
}

// Said once; tried again whenever somebody comes.
void supervisor::drain_is_blocked(time_point now) {
  if (drain_blocked_) return;
  drain_blocked_ = true;
  std::string names;
  bool has_deadline = false;
  for (const auto& m : state_.current.members) {
    names += (names.empty() ? "" : ", ") + name_of(m.who);
    has_deadline = has_deadline || time_left(m.who, now);
  }
  if (has_deadline) snapshot_wanted_ = true;
  note(event_kind::drain_blocked, names,
       std::string("nobody else is there to hold the state: it stays until another worker joins") +
           (has_deadline ? "; a checkpoint is taken now" : ""));
}

// ---- workers that are slow

void supervisor::beat(const heartbeat& h, time_point now) {
  if (stage_ == stage::ended || !workers_.contains(h.who)) return;
  if (slow_.heard(h, now) && slow_.is_due(now)) propose_if_wanted(now);
}

crew supervisor::crew_of_now(time_point now) const {
  crew c;
  c.slots = job_.batch.slots;
  c.largest_block = largest_block();
  for (const auto& m : state_.current.members)
    if (!is_draining(m.who)) c.members.push_back(m);
  for (const auto& who : candidates(now))
    if (is_spare(who)) c.spares.push_back(who);
  // Nobody is let go for speed's sake if copies would be too few then.
  const auto copies = options_.replicas == 0 ? 2 : options_.replicas;
  c.members_least = std::max<std::size_t>({1, job_.elastic.min_workers, copies});
  return c;
}

void supervisor::follow_advice(time_point now) {
  if (state_.current.action != plan_action::train || !slow_.is_due(now)) return;
  const auto found = slow_.consider(crew_of_now(now), now);
  if (!found) return;
  look_ = true;
  note(event_kind::worker_slow, name_of(found->who),
       found->why + (found->what == remedy::move_blocks ? ": blocks are moved"
                     : found->what == remedy::replace   ? ": a spare takes its place"
                                                        : ": it is let go"),
       {{"incarnation", to_string(found->who)}});
  if (found->what == remedy::move_blocks)
    move_blocks_ = found->why;
  else
    put_aside(found->who, found->why, now);
}

// It hands over and stays out for a while; then it may come back.
void supervisor::put_aside(const incarnation& who, const std::string& why, time_point now) {
  auto& out = probation_[name_of(who)];
  out = out.count() == 0 ? options_.probation : std::min<std::chrono::milliseconds>(out * 2, probation_max);
  drains_[who] = {{who, 0, true, why}, now, std::nullopt, now + out};
  record_drains();
}

}  // namespace perdura::coordinator
