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
    timeline_ = p.timeline;
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
    if (t.learning) stop_learning(t);
    t.learning = !t.held && p.next.holds(self_, tile_id(i));
  }
  release_held();
  start_feeds();
  maybe_ready();
}

// ---- feeding

void step_protocol::start_feeds() {
  if (mode_ != mode::running || !proposal_ || !plan_ || proposal_->base != plan_->id) return;
  const auto& next = proposal_->next;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const tile_id tile(i);
    if (plan_->owner(tile) != self_ || !tiles_[i].held) continue;
    if (tiles_[i].version != step_ - 1) continue;  // itself still behind what it learnt
    for (const auto index : next.holders[i]) {
      const auto& learner = next.members[index].who;
      if (!plan_->holds(learner, tile) && linked_.contains(learner)) start_feed(learner, tile);
    }
  }
}

void step_protocol::start_feed(const incarnation& learner, tile_id tile) {
  if (feeds_.contains({learner, tile})) return;
  auto& t = tiles_[tile.value];
  auto& f = feeds_[{learner, tile}];
  f.version = t.version;
  if (const auto g = t.gradients.find(t.version + 1); g != t.gradients.end())
    f.queue.push_back(make_frame(t.version + 1, g->second));
  out_.push_back(effect::copy{tile, t.version});
}

void step_protocol::tile_copied(tile_id tile, step_number version, blob state) {
  if (!proposal_ || mode_ != mode::running) return;
  for (auto& [key, f] : feeds_) {
    if (key.second != tile || f.copied || f.version != version) continue;
    f.copied = true;
    const auto& learner = key.first;
    out_.push_back(
        effect::send{learner, make_frame(version, tile_copy_frame{proposal_->next.id, tile, 0, state})});
    for (auto& g : f.queue) out_.push_back(effect::send{learner, std::move(g)});
    f.queue.clear();
  }
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

void step_protocol::on_tile_copy(const frame& f, const tile_copy_frame& c) {
  if (c.tile.value >= tile_count_) return;
  const bool known = proposal_ && proposal_->next.id == c.target;
  if (!known) {
    if (!plan_ || plan_->id < c.target) hold(f);
    return;
  }
  auto& t = tiles_[c.tile.value];
  if (!t.learning) return;
  stop_learning(t);
  t.version = f.step;
  t.copied = true;
  t.feeder = f.from;
  ready_sent_ = false;
  out_.push_back(effect::install{c.tile, f.step, c.state});
  apply_ready(c.tile);
}

// A copy for a plan that is not known yet waits; the gradients behind it on the same link must wait with it.
bool step_protocol::feed_is_held(const incarnation& feeder, tile_id tile) const {
  return std::any_of(held_.begin(), held_.end(), [&](const frame& f) {
    const auto* copy = std::get_if<tile_copy_frame>(&f.body);
    return copy && f.from == feeder && copy->tile == tile;
  });
}

void step_protocol::tile_installed(tile_id tile, step_number version) {
  auto& t = tiles_[tile.value];
  if (!t.copied || t.installed) return;
  t.installed = true;
  t.applied = t.parameters = version;
  maybe_ready();
  maybe_compute();  // a member may have waited for these parameters
}

void step_protocol::stop_learning(tile_state& t) {
  t.copied = t.installed = false;
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
  ready_sent_ = true;
  ready_[next.id].insert(self_);
  auto everybody = proposal_->leavers;
  for (const auto& m : next.members) everybody.push_back(m.who);
  for (const auto& who : everybody)
    if (who != self_ && linked_.contains(who))
      out_.push_back(effect::send{who, make_frame(step_, ready_note{next.id})});
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
  std::erase_if(ready_, [&](const auto& r) { return r.first <= next.id; });
  use_plan(next);
  mode_ = is_member() ? mode::running : mode::leaving;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    auto& t = tiles_[i];
    const bool holds = plan_->holds(self_, tile_id(i));
    if (t.learning && holds) t.held = true;
    t.learning = false;
    t.moving_off = t.held && !holds;
    if (t.moving_off && broken(rule::keep_until_verdict)) t.keep_parameters_only();
  }
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
  for (auto& t : tiles_)
    if (t.moving_off) t.keep_parameters_only();
  leavers_.clear();
  switched_at_.reset();
}

}  // namespace perdura::worker
