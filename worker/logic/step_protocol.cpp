#include "worker/logic/step_protocol.hpp"

#include <algorithm>
#include <utility>

#include "actors/base/check.hpp"
#include "actors/base/overloaded.hpp"
#include "worker/logic/outcome.hpp"

namespace perdura::worker {

step_protocol::step_protocol(incarnation self, const job_config& job, std::uint32_t tile_count, effects& out,
                             broken_rules broken, protocol_limits limits)
    : self_(self),
      job_(job),
      level_(level_of(job)),
      tile_count_(tile_count),
      out_(out),
      broken_(broken),
      limits_(limits),
      tiles_(tile_count) {}

// ---- orders

void step_protocol::order(const order_envelope& o) {
  if (o.to != self_ && !broken(rule::own_life)) return;
  if (o.term < term_ && !broken(rule::newest_term)) return;
  term_ = std::max(term_, o.term);
  std::visit(
      overloaded{[&](const fence_order& x) { on_fence(x); }, [&](const recover_order& x) { on_recover(x); },
                 [&](const start_order& x) { on_start(x); }, [&](const proposal_order& x) { on_proposal(x); },
                 [&](const released_ack& x) {
                   if (released_ == x.plan) released_.reset();
                 },
                 [&](const fenced_order& x) {
                   if (x.at >= era_) out_.push_back(effect::stop{"fenced in era " + to_string(x.at)});
                 },
                 [](const auto&) { /* jobs, peers and dismissal are the shell's */ }},
      o.order);
}

void step_protocol::coordinator_connected() {
  if (mode_ == mode::promised) report_inventory();
  if (adopted_reported_) out_.push_back(effect::report{plan_adopted{era_, self_}});
  report_missing_links();
  for (const auto& peer : complained_)
    out_.push_back(effect::report{link_complaint{self_, peer, era_, "the link broke"}});
  if (released_) out_.push_back(effect::report{released_report{self_, *released_}});
  if (newest_ && !broken(rule::report_verdict))
    out_.push_back(effect::report{verdict_report{self_, *newest_}});
  if (finished_) out_.push_back(effect::finish{step_ - 1});
}

worker_hello step_protocol::greeting() const {
  worker_hello h;
  h.protocol = protocol_version;
  h.who = self_;
  h.term = term_;
  h.at = era_;
  if (plan_) h.plan = plan_->id;
  if (!broken(rule::report_verdict)) h.newest = newest_;
  return h;
}

worker_phase step_protocol::where() const {
  if (finished_) return worker_phase::finished;
  if (mode_ == mode::promised || mode_ == mode::adopted || restoring_) return worker_phase::settling;
  if (!is_member()) return worker_phase::idle;
  if (plan_->action == plan_action::pause) return worker_phase::paused;
  for (const auto& t : tiles_)
    if (t.held && !t.moving_off && t.applied < step_ - 1) return worker_phase::apply;
  for (const auto& t : tiles_)
    if (!gathers() && t.parameters != step_ - 1) return worker_phase::gather;
  if (const auto busy = computing_.find(step_); busy != computing_.end() && !busy->second.empty())
    return worker_phase::compute;
  return voted_ == step_ ? worker_phase::vote : worker_phase::exchange;
}

// ---- frames

void step_protocol::received(frame f) {
  if (f.at < era_ && !broken(rule::drop_older)) {
    ++frames_dropped_;
    return;
  }
  const bool early =
      f.at > era_ || mode_ == mode::promised || mode_ == mode::adopted || (!plan_ && !proposal_);
  if (early) {
    if (broken(rule::hold_newer) && (f.at > era_ || mode_ != mode::idle)) return;
    return hold(std::move(f));
  }
  if (f.timeline != timeline_) {
    ++frames_dropped_;
    return;
  }
  accept(f);
}

void step_protocol::hold(frame f) {
  if (held_.size() >= limits_.held_frames_max) {
    ++frames_dropped_;
    return complain(f.from, "more frames than can be held");
  }
  held_.push_back(std::move(f));
}

void step_protocol::release_held() {
  auto waiting = std::move(held_);
  held_.clear();
  for (auto& f : waiting) received(std::move(f));
}

void step_protocol::accept(const frame& f) {
  if (f.observed) observe(*f.observed);
  std::visit(overloaded{[&](const partial_frame& x) { on_partial(f, x); },
                        [&](const reduced_frame& x) { on_reduced(f, x); },
                        [&](const parameters_frame& x) { on_parameters(f, x); },
                        [&](const tile_copy_frame& x) { on_tile_copy(f, x); },
                        [&](const vote_frame& x) { on_vote(f, x); }, [](const verdict_note&) {},
                        [&](const parameters_request& x) { on_request(f, x); },
                        [&](const feed_note& x) { on_feed_note(f, x); },
                        [&](const verdict_ack& x) { on_verdict_ack(f, x); },
                        [&](const ready_note& x) { on_ready(f, x); }},
             f.body);
}

frame step_protocol::make_frame(step_number step, frame_body body) const {
  frame f{timeline_, era_, plan_ ? plan_->id : plan_id{}, step, self_, std::nullopt, std::move(body)};
  // While an observed step is redone its verdict is not carried: it must not be applied before the votes are
  // in.
  const bool redoing = newest_ && is_member() && newest_->step >= step_;
  if (newest_ && (!redoing || broken(rule::redo_unseen)) && !broken(rule::carry_verdict))
    f.observed = newest_;
  return f;
}

void step_protocol::send(const incarnation& to, step_number step, frame_body body) {
  if (!linked_.contains(to)) complain(to, "no link to send on");
  out_.push_back(effect::send{to, make_frame(step, std::move(body))});
}

void step_protocol::send_to_members(step_number step, const frame_body& body) {
  for (const auto& m : plan_->members)
    if (m.who != self_) send(m.who, step, body);
}

// ---- a step: slots

void step_protocol::use_plan(plan p) {
  plan_ = std::move(p);
  partition_.clear();
  for (const auto& m : plan_->members) partition_.insert(partition_.end(), m.blocks.begin(), m.blocks.end());
  std::sort(partition_.begin(), partition_.end());
}

step_protocol::step_sums& step_protocol::sums_of(step_number step) {
  auto& s = sums_[step];
  if (s.received.empty()) s.received.resize(tile_count_);
  return s;
}

void step_protocol::maybe_compute() {
  if ((mode_ != mode::adopted && mode_ != mode::running) || !is_member() || restoring_) return;
  if (plan_->action != plan_action::train || step_.value > job_.steps) return;
  for (const auto& t : tiles_)
    if (gathers() ? t.held && t.applied != step_ - 1 : t.parameters != step_ - 1) return;
  auto& busy = computing_[step_];
  const auto& s = sums();
  for (const auto& b : plan_->find(self_)->blocks) {
    if (busy.contains(b) || s.own.contains(b) || s.streamed.contains(b) || orphans_.contains(b)) continue;
    busy.insert(b);
    out_.push_back(effect::compute{step_, b});
  }
}

void step_protocol::block_computed(step_number step, const block& slots, computed_block result) {
  if (const auto busy = computing_.find(step); busy != computing_.end()) busy->second.erase(slots);
  if (step != step_ || !is_member()) return;
  if (streams()) {
    if (const auto s = sums().streamed.find(slots); s != sums().streamed.end()) s->second.is_done = true;
    return;
  }
  PERDURA_CHECK(result.tiles.size() == tile_count_, "a block's gradient has one part a tile");
  sums().own[slots] = std::move(result);
  if (mode_ == mode::running) distribute(slots);
}

void step_protocol::distribute(const block& slots) {
  const auto& result = sums().own.at(slots);
  for (std::uint32_t i = 0; i < tile_count_; ++i)
    hand_over(tile_id(i), partial{slots, result.loss, result.tiles[i]});
}

void step_protocol::tile_computed(step_number step, const block& slots, tile_id tile, partial result) {
  const auto busy = computing_.find(step);
  if (step != step_ || !is_member() || busy == computing_.end() || !busy->second.contains(slots)) return;
  auto& s = sums().streamed[slots];
  if (mode_ != mode::running) {
    s.waiting[tile] = std::move(result);
    return;
  }
  s.is_sent = true;
  hand_over(tile, result);
}

// To the tile's owner, for the tree over all slots.
void step_protocol::hand_over(tile_id tile, const partial& part) {
  if (reduced_elsewhere_.contains(tile)) return;
  const auto& owner = plan_->owner(tile);
  if (owner != self_) return send(owner, step_, partial_frame{part.slots, tile, part.loss, part.gradient});
  sums().received[tile.value][part.slots] = part;
  maybe_reduce(tile);
}

void step_protocol::on_partial(const frame& f, const partial_frame& p) {
  if (!is_member() || f.step < step_ || p.tile.value >= tile_count_) return;
  sums_of(f.step).received[p.tile.value][p.slots] = partial{p.slots, p.loss, p.gradient};
  if (f.step == step_) maybe_reduce(p.tile);
}

void step_protocol::maybe_reduce(tile_id tile) {
  if (mode_ != mode::running || !is_member() || plan_->owner(tile) != self_) return;
  auto& s = sums();
  if (tiles_[tile.value].gradients.contains(step_) || s.reducing.contains(tile)) return;
  const auto& received = s.received[tile.value];
  effect::reduce all{step_, tile, {}};
  for (const auto& b : partition_) {
    const auto part = received.find(b);
    if (part == received.end()) return;
    all.partials.push_back(part->second);
  }
  s.reducing.insert(tile);
  out_.push_back(std::move(all));
}

// ---- gradients

void step_protocol::tile_reduced(step_number step, tile_id tile, reduced_frame result) {
  if (const auto s = sums_.find(step); s != sums_.end()) s->second.reducing.erase(tile);
  auto& t = tiles_[tile.value];
  if (step != step_ || !t.held || t.gradients.contains(step)) return;
  result.tile = tile;
  t.gradients[step] = result;
  if (mode_ != mode::running) return;
  // No memory for what only a recovery would use; but what an inventory has reported stays.
  if (streams()) sums().received[tile.value].clear();
  if (plan_->owner(tile) == self_) spread_gradient(tile, result);
  maybe_vote();
}

void step_protocol::spread_gradient(tile_id tile, const reduced_frame& g) {
  for (const auto index : plan_->holders[tile.value]) {
    const auto& who = plan_->members[index].who;
    if (who != self_) send(who, step_, g);
  }
  feed_gradient(tile, make_frame(step_, g));
}

void step_protocol::on_reduced(const frame& f, const reduced_frame& r) {
  if (r.tile.value >= tile_count_) return;
  auto& t = tiles_[r.tile.value];
  const bool wanted = t.held || (t.learning && t.copied);
  if (!wanted || f.step <= t.version || t.gradients.contains(f.step)) return;
  if (t.gradients.size() >= limits_.backlog_steps_max) {
    out_.push_back(effect::stop{"the backlog of gradients to learn from is full"});
    return;
  }
  t.gradients[f.step] = r;
  if (t.held) feed_gradient(r.tile, make_frame(f.step, r));
  apply_ready(r.tile);
  if (f.step == step_) maybe_vote();
}

// ---- votes

void step_protocol::maybe_vote() {
  if (mode_ != mode::running || !is_member() || restoring_ || voted_ == step_) return;
  if (plan_->action != plan_action::train || step_.value > job_.steps) return;
  if (!broken(rule::await_leavers) && switched_at_ && *switched_at_ + 1 == step_)
    for (const auto& leaver : leavers_)
      if (!leavers_acked_.contains(leaver)) return;

  vote_frame vote;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const auto& t = tiles_[i];
    if (!plan_->holds(self_, tile_id(i))) continue;
    const auto g = t.gradients.find(step_);
    const bool has_gradient = g != t.gradients.end();
    if (t.applied != step_ - 1) return;
    if (!has_gradient && !broken(rule::vote_needs_gradient)) return;
    if (has_gradient)
      vote.parts.push_back({tile_id(i), g->second.norm2, g->second.finite, g->second.loss});
    else if (sums().own.empty())
      return;  // (the broken rule: votes once its own blocks are done)
  }
  vote.prepared = prepared_for();
  voted_ = step_;
  votes_[step_][self_] = vote;
  bool odd = false;
  for (const auto& m : plan_->members) {
    if (m.who == self_) continue;
    auto said = vote;
    if (broken(rule::one_vote) && odd) said.prepared = {};
    odd = !odd;
    send(m.who, step_, std::move(said));
  }
  if (broken(rule::apply_needs_verdict)) {
    const auto outcome = outcome_of(collected_parts());
    for (std::uint32_t i = 0; i < tile_count_; ++i) {
      auto& t = tiles_[i];
      if (!t.held || !t.gradients.contains(step_)) continue;
      t.version = step_;
      out_.push_back(effect::apply{step_, tile_id(i), t.gradients.at(step_).gradient, outcome});
    }
  }
  try_conclude();
}

void step_protocol::on_vote(const frame& f, const vote_frame& v) {
  if (!is_member() || f.step < step_ || !plan_->has_member(f.from)) return;
  votes_[f.step].emplace(f.from, v);
  if (f.step == step_) try_conclude();
}

std::vector<vote_part> step_protocol::collected_parts() const {
  std::vector<vote_part> parts(tile_count_);
  for (std::uint32_t i = 0; i < tile_count_; ++i) parts[i].tile = tile_id(i);
  const auto votes = votes_.find(step_);
  if (votes == votes_.end()) return parts;
  std::vector<bool> seen(tile_count_);
  for (const auto& [who, vote] : votes->second)
    for (const auto& p : vote.parts) {
      if (p.tile.value >= tile_count_) continue;
      auto& slot = parts[p.tile.value];
      // Two holders of a tile reduced or received the same bits, or one of them computes wrongly.
      PERDURA_CHECK(!seen[p.tile.value] || slot == p, "holders of a tile voted with different gradients");
      seen[p.tile.value] = true;
      slot = p;
    }
  return parts;
}

step_outcome step_protocol::outcome_of(const std::vector<vote_part>& parts) const {
  auto outcome = conclude(job_, parts, settled_outcome_);
  if (!expected_ || expected_->step != step_) return outcome;
  // Redone: what only the votes determine must come out the same; the rest (the optimizer's time) stands.
  auto redone = expected_->outcome;
  redone.gradient_norm = outcome.gradient_norm;
  redone.loss = outcome.loss;
  redone.skipped = outcome.skipped;
  PERDURA_CHECK(redone == expected_->outcome, "a step that was redone came to another outcome");
  return expected_->outcome;
}

void step_protocol::try_conclude() {
  if (mode_ != mode::running || !is_member() || voted_ != step_) return;
  const auto& votes = votes_[step_];
  std::size_t present = 0;
  bool all_prepared = true;
  const auto own_prepared = votes.at(self_).prepared;
  for (const auto& m : plan_->members) {
    const auto vote = votes.find(m.who);
    if (vote == votes.end()) continue;
    ++present;
    all_prepared = all_prepared && vote->second.prepared == own_prepared;
  }
  const auto needed = broken(rule::all_votes) ? plan_->members.size() / 2 + 1 : plan_->members.size();
  if (present < needed) return;
  const auto parts = collected_parts();
  verdict v{step_, timeline_, plan_->id, plan_->id, outcome_of(parts)};
  const bool changes = !own_prepared.is_none() && (all_prepared || broken(rule::switch_at_verdict));
  if (changes) v.next_plan = own_prepared;
  observe(v);
}

// ---- verdicts

void step_protocol::observe(const verdict& v) {
  if (v.timeline != timeline_) return;
  if (!is_member()) return observe_from_outside(v);
  if (v.step < step_) {
    const auto known = verdicts_.find(v.step);
    PERDURA_CHECK(known == verdicts_.end() || known->second.outcome == v.outcome, "two outcomes of one step");
    return catch_up(v);
  }
  PERDURA_CHECK(v.step == step_, "a step was concluded without this member's vote");
  if (expected_ && expected_->step == v.step)
    PERDURA_CHECK(expected_->outcome == v.outcome, "a step that was redone came to another outcome");
  const bool changes = v.next_plan != plan_->id;
  PERDURA_CHECK(!changes || (proposal_ && proposal_->next.id == v.next_plan),
                "a verdict named an unknown plan");

  remember(v);
  if (snapshot_due(v)) {
    snapshot_step_ = v.step;
    snapshot_plan_ = plan_;
  }
  step_ = v.step + 1;
  orphans_.clear();
  reduced_elsewhere_.clear();
  wanted_parameters_.clear();
  sums_.erase(sums_.begin(), sums_.lower_bound(step_));
  votes_.erase(votes_.begin(), votes_.lower_bound(step_));
  computing_.erase(computing_.begin(), computing_.lower_bound(step_));

  let_go(v);
  if (changes)
    switch_plan(v);
  else
    for (auto& [key, f] : feeds_)
      if (f.copied) send(key.first, v.step, verdict_note{});
  for (std::uint32_t i = 0; i < tile_count_; ++i) apply_ready(tile_id(i));
  for (std::uint32_t i = 0; i < tile_count_ && is_member(); ++i) maybe_reduce(tile_id(i));
  maybe_compute();
  maybe_vote();
  maybe_finish();
}

// A learner follows the verdicts to apply them to what it has learnt; a leaver waits for the first under the
// new plan.
void step_protocol::observe_from_outside(const verdict& v) {
  if (mode_ == mode::leaving) {
    if (switched_at_ && v.step > *switched_at_) let_go(v);
    return;
  }
  if (!proposal_) return;
  const bool is_new = !newest_ || v.step > newest_->step;
  verdicts_.emplace(v.step, v);
  if (is_new) newest_ = v;
  for (std::uint32_t i = 0; i < tile_count_; ++i) apply_ready(tile_id(i));
  if (v.next_plan == proposal_->next.id && is_new) {
    settled_outcome_ = v.outcome;
    step_ = v.step + 1;
    out_.push_back(effect::report{verdict_report{self_, v}});
    switch_plan(v);
    for (std::uint32_t i = 0; i < tile_count_; ++i) apply_ready(tile_id(i));
    maybe_compute();
    maybe_vote();
    maybe_finish();
  }
}

// A tile that was learnt may still be behind: it needs the verdicts in between, whoever's frames bring them.
void step_protocol::catch_up(const verdict& v) {
  bool behind = false;
  for (const auto& t : tiles_)
    behind = behind || ((t.held || (t.learning && t.copied)) && t.version < v.step);
  if (!behind) return;
  verdicts_.emplace(v.step, v);
  for (std::uint32_t i = 0; i < tile_count_; ++i) apply_ready(tile_id(i));
}

void step_protocol::remember(const verdict& v) {
  newest_ = v;
  settled_outcome_ = v.outcome;
  expected_.reset();
  bool learning = false;
  for (const auto& t : tiles_) learning = learning || t.learning || (t.held && t.version + 1 < v.step);
  if (!learning) verdicts_.clear();
  verdicts_[v.step] = v;
  if (!broken(rule::report_verdict)) out_.push_back(effect::report{verdict_report{self_, v}});
}

void step_protocol::apply_ready(tile_id tile) {
  auto& t = tiles_[tile.value];
  while (t.held || (t.learning && t.copied)) {
    const auto v = verdicts_.find(t.version + 1);
    const auto g = t.gradients.find(t.version + 1);
    if (v == verdicts_.end() || g == t.gradients.end()) return;
    auto outcome = v->second.outcome;
    if (broken(rule::carry_norm)) {
      std::vector<vote_part> own;
      for (std::uint32_t i = 0; i < tile_count_; ++i)
        if (const auto mine = tiles_[i].gradients.find(v->first); mine != tiles_[i].gradients.end())
          own.push_back({tile_id(i), mine->second.norm2, mine->second.finite, mine->second.loss});
      outcome.gradient_norm = conclude(job_, own, outcome).gradient_norm;
    }
    t.version = v->first;
    out_.push_back(effect::apply{v->first, tile, g->second.gradient, outcome});
  }
}

void step_protocol::tile_applied(step_number step, tile_id tile) {
  auto& t = tiles_[tile.value];
  if (!(t.held || (t.learning && t.installed)) || step > t.version) return;  // let go meanwhile
  t.applied = step;
  t.parameters = step;
  t.gradients.erase(t.gradients.begin(), t.gradients.upper_bound(step));
  maybe_snapshot(tile);
  if (is_running() || mode_ == mode::adopted) {
    if (mode_ == mode::running) spread_parameters(tile);
    answer_requests(tile);
    start_feeds();
    maybe_compute();
    maybe_vote();
    maybe_finish();
  }
}

void step_protocol::maybe_snapshot(tile_id tile) {
  const auto applied = tiles_[tile.value].applied;
  if (snapshot_step_ != applied || snapshot_plan_->owner(tile) != self_) return;
  std::uint32_t mine = 0;
  for (std::uint32_t i = 0; i < tile_count_; ++i) mine += snapshot_plan_->owner(tile_id(i)) == self_ ? 1 : 0;
  out_.push_back(effect::snapshot{tile, applied, mine});
}

bool step_protocol::snapshot_due(const verdict& v) const {
  const auto interval = job_.checkpoint.interval_steps;
  if (v.step.value == job_.steps || (interval > 0 && v.step.value % interval == 0)) return true;
  return v.next_plan != plan_->id && proposal_ && proposal_->next.id == v.next_plan &&
         proposal_->next.snapshot;
}

void step_protocol::let_go_of(tile_id tile) {
  auto& t = tiles_[tile.value];
  if (t.held || t.copied || t.kept) out_.push_back(effect::let_go{tile});
  t.keep_parameters_only();
}

void step_protocol::maybe_finish() {
  if (finished_ || !is_member() || mode_ != mode::running || step_.value <= job_.steps) return;
  for (const auto& t : tiles_)
    if (t.held && t.applied != step_ - 1) return;
  finished_ = true;
  out_.push_back(effect::finish{step_ - 1});
}

}  // namespace perdura::worker
