// Plans that take effect at a verdict: learners and their feeds, switching, leaving.
#include <algorithm>

#include "actors/base/check.hpp"
#include "worker/logic/step_protocol.hpp"

namespace perdura::worker {

void step_protocol::on_proposal(const proposal_order& p) {
  if (p.next.id.at < era_ || mode_ == mode::promised) return;
  if (p.next.id.at > era_) {
    if (plan_) return;  // a member hears of a new era by its fence
    era_ = p.next.id.at;
  }
  if (!plan_) {
    mode_ = mode::idle;
    enter_timeline(p.timeline);
  }
  if (plan_ && plan_->id >= p.next.id) return;
  if (proposal_ && proposal_->next.id >= p.next.id) return;
  if (proposal_ && proposal_->next.id == p.base) {
    queued_proposal_ = p;  // this worker has not yet seen its base take effect
    return;
  }
  accept_proposal(p);
}

void step_protocol::accept_proposal(const proposal_order& p) {
  proposal_ = p;
  ready_sent_ = false;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    auto& t = tiles_[i];
    // What is only kept for the plan before gets no gradients any more: it has to be learnt again.
    const bool learns = (!t.held || t.moving_off) && p.next.holds(self_, tile_id(i));
    if (t.learning || t.kept) {
      const bool is_whole = t.is_whole_copy();
      if (!learns || !is_whole) let_go_of(tile_id(i));
      stop_learning(t);
      t.kept = learns && is_whole;
    }
    t.learning = learns;
    if (learns) t.asked = t.copied = t.installed = false;  // of the last time that it was learnt
  }
  asked_feeds_.clear();
  release_held();
  ask_for_copies();
  maybe_ready();
  report_missing_links();
}

// ---- feeding

void step_protocol::on_feed_note(const frame& f, const feed_note& n) {
  if (n.tile.value >= tile_count_) return;
  if (!proposal_ || proposal_->next.id != n.target) {
    if (!plan_ || plan_->id < n.target) hold(f);
    return;
  }
  feeds_.erase({f.from, n.tile});
  asked_feeds_[{f.from, n.tile}] = n.have;
  start_feeds();
}

void step_protocol::start_feeds() {
  if (mode_ != mode::running || !proposal_ || !plan_ || proposal_->base != plan_->id) return;
  for (auto it = asked_feeds_.begin(); it != asked_feeds_.end();) {
    const auto [learner, tile] = it->first;
    const auto& t = tiles_[tile.value];
    // Itself still behind what it learnt.
    if (!t.held || (t.version != step_ - 1 && !broken(rule::feed_when_caught_up))) {
      ++it;
      continue;
    }
    start_feed(learner, tile, it->second);
    it = asked_feeds_.erase(it);
  }
}

void step_protocol::start_feed(const incarnation& learner, tile_id tile, std::optional<step_number> have) {
  auto& t = tiles_[tile.value];
  auto& f = feeds_[{learner, tile}];
  f.version = t.version;
  if (const auto g = t.gradients.find(t.version + 1); g != t.gradients.end())
    f.queue.push_back(make_frame(t.version + 1, g->second));
  if (!have || (*have != t.version && !broken(rule::resume_at_version))) {
    out_.push_back(effect::copy{tile, t.version});
    return;
  }
  begin_feed(learner, tile, f, *have, 0, {});
}

void step_protocol::tile_copied(tile_id tile, step_number version, std::uint64_t hash, blob state) {
  if (!proposal_ || mode_ != mode::running) return;
  for (auto& [key, f] : feeds_) {
    if (key.second != tile || f.copied || f.version > version) continue;
    // Steps may have passed while the copy was put off.
    std::erase_if(f.queue, [&](const frame& g) { return g.step <= version; });
    f.version = version;
    begin_feed(key.first, tile, f, version, hash, state);
  }
}

// An empty state says: what you have is what I would send.
void step_protocol::begin_feed(const incarnation& learner, tile_id tile, feed& f, step_number version,
                               std::uint64_t hash, const blob& state) {
  f.copied = true;
  out_.push_back(
      effect::send{learner, make_frame(version, tile_copy_frame{proposal_->next.id, tile, hash, state})});
  for (auto& g : f.queue) out_.push_back(effect::send{learner, std::move(g)});
  f.queue.clear();
}

void step_protocol::feed_gradient(tile_id tile, const frame& f) {
  for (auto& [key, to] : feeds_) {
    if (key.second != tile || f.step <= to.version) continue;
    if (to.copied)
      out_.push_back(effect::send{key.first, f});
    else
      to.queue.push_back(f);
  }
}

// ---- learning

// A few at a time from each feeder: copies must crowd out neither the gradients on the links nor the memory.
void step_protocol::ask_for_copies() {
  if (!proposal_ || mode_ == mode::promised) return;
  std::map<incarnation, std::size_t> under_way;
  for (const auto& t : tiles_)
    if (t.learning && t.asked && !t.installed) ++under_way[t.feeder];
  for (const auto& m : proposal_->moves) {
    if (m.to != self_ || m.tile.value >= tile_count_) continue;
    auto& t = tiles_[m.tile.value];
    if (!t.learning || t.held || t.asked || !linked_.contains(m.from)) continue;
    if (under_way[m.from] >= limits_.copies_at_once) continue;
    ++under_way[m.from];
    t.asked = true;
    t.feeder = m.from;
    const auto have = t.kept ? std::optional(t.version) : std::nullopt;
    out_.push_back(effect::send{m.from, make_frame(step_, feed_note{proposal_->next.id, m.tile, have})});
  }
}

void step_protocol::on_tile_copy(const frame& f, const tile_copy_frame& c) {
  if (c.tile.value >= tile_count_) return;
  const bool known = proposal_ && proposal_->next.id == c.target;
  if (!known) {
    if (!plan_ || plan_->id < c.target) hold(f);
    return;
  }
  auto& t = tiles_[c.tile.value];
  if (!t.learning || !t.asked || t.copied || t.feeder != f.from) return;
  const bool resumes = c.state.empty();
  if (resumes && !t.kept) return;  // it was asked for before this copy was lost
  t.gradients.clear();
  t.copied = true;
  t.installed = resumes;
  t.kept = false;
  t.version = f.step;
  ready_sent_ = false;
  if (resumes) {
    t.applied = t.parameters = f.step;
    ask_for_copies();
    maybe_ready();
  } else {
    out_.push_back(effect::install{c.tile, f.step, c.hash, c.state});
  }
  apply_ready(c.tile);
}

void step_protocol::tile_installed(tile_id tile, step_number version) {
  auto& t = tiles_[tile.value];
  if (!t.copied || t.installed) return;
  t.installed = true;
  t.applied = t.parameters = version;
  ask_for_copies();
  maybe_ready();
  maybe_compute();  // a member may have waited for these parameters
}

void step_protocol::tile_damaged(tile_id tile, step_number version) {
  auto& t = tiles_[tile.value];
  if (!t.learning || !t.copied || t.installed || t.version < version) return;
  out_.push_back(effect::let_go{tile});
  stop_learning(t);
  ask_for_copies();
}

void step_protocol::stop_learning(tile_state& t) {
  t.asked = t.copied = t.installed = false;
  t.gradients.clear();
}

void step_protocol::maybe_ready() {
  if (!proposal_ || ready_sent_) return;
  const auto& next = proposal_->next;
  bool learns = !plan_ && next.has_member(self_);
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const auto& t = tiles_[i];
    if (!t.learning) continue;
    learns = true;
    if (!t.installed) return;
  }
  if (!learns) return;
  // A newcomer is a member with links to all others, or the first frame to one that lacks would be a failure.
  for (const auto& m : next.members)
    if (!plan_ && m.who != self_ && !linked_.contains(m.who)) return;
  ready_sent_ = true;
  ready_[next.id].insert(self_);
  auto everybody = proposal_->leavers;
  for (const auto& m : next.members) everybody.push_back(m.who);
  for (const auto& who : everybody)
    if (who != self_ && linked_.contains(who))
      out_.push_back(effect::send{who, make_frame(step_, ready_note{next.id})});
  report_missing_links();
}

void step_protocol::on_ready(const frame& f, const ready_note& r) { ready_[r.target].insert(f.from); }

std::vector<incarnation> step_protocol::learners() const {
  std::vector<incarnation> found;
  const auto& next = proposal_->next;
  for (const auto& m : next.members) {
    const auto& who = m.who;
    bool learns = !plan_->has_member(who);
    for (std::uint32_t i = 0; i < tile_count_ && !learns; ++i)
      learns = next.holds(who, tile_id(i)) && !plan_->holds(who, tile_id(i));
    if (learns) found.push_back(who);
  }
  return found;
}

plan_id step_protocol::prepared_for() const {
  if (!proposal_ || !plan_ || proposal_->base != plan_->id) return {};
  if (broken(rule::await_ready)) return proposal_->next.id;
  const auto said = ready_.find(proposal_->next.id);
  for (const auto& learner : learners())
    if (said == ready_.end() || !said->second.contains(learner)) return {};
  return proposal_->next.id;
}

// ---- switching

void step_protocol::switch_plan(const verdict& v) {
  const auto next = proposal_->next;
  leavers_ = proposal_->leavers;
  leavers_acked_.clear();
  switched_at_ = v.step;
  proposal_.reset();
  ready_sent_ = false;
  feeds_.clear();
  asked_feeds_.clear();
  std::erase_if(ready_, [&](const auto& r) { return r.first <= next.id; });
  use_plan(next);
  mode_ = is_member() ? mode::running : mode::leaving;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    auto& t = tiles_[i];
    const bool holds = plan_->holds(self_, tile_id(i));
    if (t.learning && holds) t.held = true;
    t.learning = t.kept = false;
    t.moving_off = t.held && !holds;
    if (t.moving_off && broken(rule::keep_until_verdict)) let_go_of(tile_id(i));
  }
  for (std::uint32_t i = 0; i < tile_count_; ++i) answer_requests(tile_id(i));
  send_to_members(v.step, verdict_note{});
  for (const auto& who : leavers_)
    if (who != self_) send(who, v.step, verdict_note{});
  if (mode_ == mode::leaving) {
    send_to_members(v.step, verdict_ack{next.id});
    if (broken(rule::keep_until_verdict)) {
      auto early = v;
      early.step = v.step + 1;
      let_go(early);
    }
  }
  if (queued_proposal_ && plan_ && queued_proposal_->base == plan_->id) {
    const auto queued = std::move(*queued_proposal_);
    queued_proposal_.reset();
    accept_proposal(queued);
  }
}

void step_protocol::on_verdict_ack(const frame& f, const verdict_ack& a) {
  if (!plan_ || plan_->id != a.target) return;
  leavers_acked_.insert(f.from);
  maybe_vote();
}

// The first verdict under the new plan is here: nobody needs any more what has moved off.
void step_protocol::let_go(const verdict& v) {
  if (!switched_at_ || v.step <= *switched_at_) return;
  if (mode_ == mode::leaving) {
    const auto left = plan_->id;
    forget_everything();
    released_ = left;
    out_.push_back(effect::report{released_report{self_, left}});
    return;
  }
  for (const auto& who : leavers_) send(who, v.step, verdict_note{});
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    auto& t = tiles_[i];
    if (!t.moving_off) continue;
    const bool comes_back = t.learning && t.applied == t.version;
    if (!comes_back) let_go_of(tile_id(i));
    stop_learning(t);  // how it came here is over
    t.held = t.moving_off = false;
    t.kept = comes_back;
    t.learning = proposal_ && proposal_->next.holds(self_, tile_id(i));
  }
  ask_for_copies();
  leavers_.clear();
  switched_at_.reset();
}

}  // namespace perdura::worker
