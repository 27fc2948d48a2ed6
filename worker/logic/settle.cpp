// Recovery as a worker sees it: promise, report, adopt, start.
#include <algorithm>

#include "actors/base/check.hpp"
#include "worker/logic/step_protocol.hpp"

namespace perdura::worker {

void step_protocol::on_fence(const fence_order& f) {
  if (f.at < era_) return;
  if (f.at == era_) {
    if (mode_ == mode::promised) report_inventory();
    return;
  }
  if (broken(rule::promise)) {
    const auto kept = era_;
    era_ = f.at;
    report_inventory();
    era_ = kept;
    return;
  }
  era_ = f.at;
  if (!plan_) enter_timeline(f.timeline);
  mode_ = mode::promised;
  voted_.reset();
  votes_.clear();
  proposal_.reset();
  queued_proposal_.reset();
  ready_.clear();
  ready_sent_ = false;
  feeds_.clear();
  asked_feeds_.clear();
  requests_.clear();
  reading_.clear();
  abandon_streamed();
  complained_.clear();
  adopted_reported_ = false;
  finished_ = false;
  std::erase_if(held_, [&](const frame& held) { return held.at < era_; });
  report_inventory();
}

// What has been handed over of a block is with the tiles' owners, or with nobody: where all of them live and
// have all of it they say so. Else the block is computed again.
void step_protocol::abandon_streamed() {
  auto& streamed = sums().streamed;
  auto& busy = computing_[step_];
  std::erase_if(streamed, [&](const auto& s) {
    if (!s.second.is_sent || broken(rule::abandon_streamed)) return false;
    busy.erase(s.first);
    return true;
  });
  if (streams()) out_.push_back(effect::keep_only{step_, {busy.begin(), busy.end()}});
}

void step_protocol::report_inventory() {
  inventory_report r{era_, self_, timeline_, plan_ ? plan_->id : plan_id{}, newest_, {}, step_, {}};
  if (broken(rule::report_verdict)) r.newest.reset();
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const auto& t = tiles_[i];
    if (t.learning && !t.copied && newest_ && broken(rule::half_copy_is_none))
      r.tiles.push_back({tile_id(i), newest_->step, true, false});
    if (!t.held && !t.kept && !(t.learning && t.copied)) continue;
    const bool complete = !restoring_ && (t.held || t.kept || t.installed);
    r.tiles.push_back({tile_id(i), t.version, complete, t.gradients.contains(t.version + 1)});
  }
  if (const auto busy = computing_.find(step_); busy != computing_.end())
    for (const auto& b : busy->second) r.blocks.push_back({b, block_status::computing, {}});
  if (const auto kept = sums_.find(step_); kept != sums_.end()) {
    for (const auto& [b, result] : kept->second.own) r.blocks.push_back({b, block_status::computed, {}});
    for (const auto& [b, result] : kept->second.streamed)
      if (result.is_done) r.blocks.push_back({b, block_status::computed, {}});
    std::map<block, std::vector<tile_id>> received;
    for (std::uint32_t i = 0; i < tile_count_; ++i)
      for (const auto& [b, part] : kept->second.received[i])
        if (!kept->second.own.contains(b) && !kept->second.streamed.contains(b))
          received[b].push_back(tile_id(i));
    for (auto& [b, tiles] : received) r.blocks.push_back({b, block_status::received, std::move(tiles)});
  }
  out_.push_back(effect::report{std::move(r)});
}

void step_protocol::on_recover(const recover_order& r) {
  if (r.at < era_) return;
  // A decision made without this worker's inventory: it can only have been left out.
  if (r.at > era_ && r.next.has_member(self_) && !broken(rule::promise)) return;
  if (mode_ != mode::promised && r.at == era_) {
    if (adopted_reported_) out_.push_back(effect::report{plan_adopted{era_, self_}});
    return;
  }
  era_ = r.at;
  recovery_ = r;
  if (!plan_) enter_timeline(r.timeline);
  timeline_ = r.timeline;
  if (!r.next.has_member(self_)) {
    set_copies_aside();
    forget_everything();
    return release_held();
  }
  mode_ = mode::adopted;
  adopted_reported_ = false;
  finished_ = false;
  proposal_.reset();
  released_.reset();
  switched_at_.reset();
  leavers_.clear();
  leavers_acked_.clear();
  voted_.reset();
  votes_.clear();
  complained_.clear();
  use_plan(r.next);
  adopt_sums(r);
  adopt_state(r);
  maybe_compute();
  maybe_adopted();
  report_missing_links();
}

// Should they never come, the coordinator has to know which ones: those that a plan's start waits for, and
// those that a newcomer copies from and that its READY has to reach.
void step_protocol::report_missing_links() {
  const bool is_adopting = mode_ == mode::adopted && !adopted_reported_;
  const bool is_newcomer = !plan_ && proposal_.has_value();
  if (!is_adopting && !is_newcomer) return;
  std::set<incarnation> needed;
  for (const auto& m : is_adopting ? plan_->members : proposal_->next.members) needed.insert(m.who);
  if (is_newcomer) needed.insert(proposal_->leavers.begin(), proposal_->leavers.end());
  needed.erase(self_);
  bool all = true;
  for (const auto& who : needed) {
    if (linked_.contains(who)) continue;
    all = false;
    out_.push_back(effect::report{link_complaint{self_, who, era_, "there is no link yet"}});
  }
  if (all && is_newcomer) out_.push_back(effect::report{plan_adopted{era_, self_}});
}

void step_protocol::adopt_sums(const recover_order& r) {
  const auto next = r.settled + 1;
  if (r.restore) {
    sums_.clear();
    computing_.clear();
  }
  std::erase_if(sums_, [&](const auto& s) { return s.first != next; });
  std::erase_if(computing_, [&](const auto& c) { return c.first != next; });
  const auto& mine = plan_->find(self_)->blocks;
  if (const auto busy = computing_.find(next); busy != computing_.end())
    std::erase_if(busy->second,
                  [&](const block& b) { return std::find(mine.begin(), mine.end(), b) == mine.end(); });
  if (const auto kept = sums_.find(next); kept != sums_.end())
    std::erase_if(kept->second.streamed,
                  [&](const auto& s) { return std::find(mine.begin(), mine.end(), s.first) == mine.end(); });
  out_.push_back(effect::keep_only{next, mine});
  reduced_elsewhere_ = {r.reduced.begin(), r.reduced.end()};
  orphans_ = {r.orphans.begin(), r.orphans.end()};
}

void step_protocol::adopt_state(const recover_order& r) {
  step_ = r.settled + 1;
  expected_ = r.expected;
  settled_outcome_ = r.standing ? r.standing->outcome : step_outcome{};
  verdicts_.erase(verdicts_.lower_bound(step_), verdicts_.end());
  if (r.standing) verdicts_[r.settled] = *r.standing;
  if (r.restore)
    newest_ = r.standing;
  else if (const auto& v = r.expected ? r.expected : r.standing; v && (!newest_ || newest_->step < v->step))
    newest_ = v;
  // A verdict of an older timeline came with the checkpoint that this one began from.
  const bool due = r.standing && r.standing->timeline == r.timeline && snapshot_due(*r.standing);
  snapshot_step_ = due ? std::optional(r.settled) : std::nullopt;
  snapshot_plan_ = due ? plan_ : std::nullopt;

  restoring_ = r.restore.has_value();
  effect::restore load{era_, r.restore.value_or(restore_source{}), {}, !r.standing};
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const tile_id tile(i);
    auto& t = tiles_[i];
    const bool holds = plan_->holds(self_, tile);
    if (restoring_) {
      if (!holds) let_go_of(tile);
      t = {};
      t.held = holds;
      t.parameters = no_version;
      if (holds) load.held.push_back(tile);
      continue;
    }
    if (!holds) {
      if (t.held || t.learning || t.kept) let_go_of(tile);
      continue;
    }
    t.held = true;
    t.learning = t.moving_off = t.kept = false;
    t.gradients.erase(t.gradients.upper_bound(step_), t.gradients.end());
    const bool completes = r.standing && t.version + 1 == r.settled && t.gradients.contains(r.settled);
    PERDURA_CHECK(t.version == r.settled || completes,
                  "made holder of a tile that cannot be brought to the settled step");
    maybe_snapshot(tile);
    apply_ready(tile);
  }
  if (restoring_) out_.push_back(std::move(load));
}

void step_protocol::restored(era at) {
  if (!restoring_ || at != era_ || mode_ == mode::promised) return;
  const auto step = recovery_->settled;
  restoring_ = false;
  for (auto& t : tiles_) t.version = t.applied = t.parameters = step;
  for (std::uint32_t i = 0; i < tile_count_ && mode_ == mode::running; ++i) {
    spread_parameters(tile_id(i));
    answer_requests(tile_id(i));
  }
  maybe_compute();
  maybe_vote();
  maybe_finish();
}

// Adopted is said once links to all other members are there, so that nothing sent after the start can be lost
// without a break that both ends see.
void step_protocol::maybe_adopted() {
  if (mode_ != mode::adopted || adopted_reported_) return;
  for (const auto& m : plan_->members)
    if (m.who != self_ && !linked_.contains(m.who)) return;
  adopted_reported_ = true;
  out_.push_back(effect::report{plan_adopted{era_, self_}});
}

void step_protocol::on_start(const start_order& s) {
  if (s.at != era_ || mode_ != mode::adopted) return;
  mode_ = mode::running;
  resend_step();
  release_held();
}

// Everything of the step settled on that this worker has and others may lack.
void step_protocol::resend_step() {
  const auto& mine = plan_->find(self_)->blocks;
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const auto g = tiles_[i].gradients.find(step_);
    if (plan_->owner(tile_id(i)) == self_ && g != tiles_[i].gradients.end()) {
      const auto copy = g->second;
      spread_gradient(tile_id(i), copy);
    }
  }
  std::vector<block> done;
  auto streamed = std::move(sums().streamed);
  for (auto& [b, s] : streamed) {
    for (const auto& [tile, part] : s.waiting) hand_over(tile, part);
    s.is_sent = !s.waiting.empty();
    s.waiting.clear();
  }
  sums().streamed = std::move(streamed);
  for (const auto tile : wanted_parameters_)
    if (!tiles_[tile.value].held) send(plan_->owner(tile), step_ - 1, parameters_request{tile});
  for (const auto& [b, result] : sums().own)
    if (orphans_.contains(b) || std::find(mine.begin(), mine.end(), b) != mine.end()) done.push_back(b);
  for (const auto& b : done) distribute(b);
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    const tile_id tile(i);
    if (reduced_elsewhere_.contains(tile) || plan_->owner(tile) == self_) continue;
    for (const auto& [b, part] : sums().received[i])
      if (orphans_.contains(b))
        send(plan_->owner(tile), step_, partial_frame{b, tile, part.loss, part.gradient});
  }
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    maybe_reduce(tile_id(i));
    spread_parameters(tile_id(i));
  }
  maybe_compute();
  maybe_vote();
  maybe_finish();
}

// A newcomer that had copied tiles when a failure came between: it need not copy them again as long as no
// later version exists.
void step_protocol::set_copies_aside() {
  if (plan_) return;
  for (auto& t : tiles_) {
    t.kept = t.is_whole_copy();
    if (t.kept) stop_learning(t);
  }
}

// What a newcomer has copied is of the timeline that it was copied in.
void step_protocol::enter_timeline(timeline_number t) {
  for (std::uint32_t i = 0; i < tile_count_ && t != timeline_; ++i)
    if (tiles_[i].kept || tiles_[i].copied) let_go_of(tile_id(i));
  timeline_ = t;
}

void step_protocol::forget_everything() {
  mode_ = mode::idle;
  plan_.reset();
  partition_.clear();
  step_ = step_number(1);
  newest_.reset();
  verdicts_.clear();
  settled_outcome_ = {};
  expected_.reset();
  for (std::uint32_t i = 0; i < tile_count_; ++i) {
    auto& t = tiles_[i];
    if (t.kept) {
      t.learning = false;
      continue;
    }
    let_go_of(tile_id(i));
    t = {};
    t.parameters = no_version;
  }
  sums_.clear();
  computing_.clear();
  out_.push_back(effect::keep_only{step_, {}});
  reduced_elsewhere_.clear();
  orphans_.clear();
  votes_.clear();
  voted_.reset();
  proposal_.reset();
  queued_proposal_.reset();
  ready_.clear();
  ready_sent_ = false;
  feeds_.clear();
  asked_feeds_.clear();
  wanted_parameters_.clear();
  requests_.clear();
  reading_.clear();
  leavers_.clear();
  leavers_acked_.clear();
  switched_at_.reset();
  snapshot_step_.reset();
  snapshot_plan_.reset();
  restoring_ = adopted_reported_ = finished_ = false;
}

// ---- links

void step_protocol::link_up(const incarnation& peer) {
  linked_.insert(peer);
  maybe_adopted();
  ask_for_copies();
  if (ready_sent_ && proposal_)
    out_.push_back(effect::send{peer, make_frame(step_, ready_note{proposal_->next.id})});
  else
    maybe_ready();
  report_missing_links();
}

void step_protocol::link_down(const incarnation& peer, const std::string& why) {
  if (linked_.erase(peer) == 0) return;
  const bool relevant = is_relevant(peer);
  for (auto& [target, who] : ready_) who.erase(peer);
  std::erase_if(feeds_, [&](const auto& f) { return f.first.first == peer; });
  std::erase_if(asked_feeds_, [&](const auto& f) { return f.first.first == peer; });
  // What an inventory has reported stays until the decision that is made from it.
  for (std::uint32_t i = 0; i < tile_count_ && mode_ != mode::promised && !broken(rule::whole_feed); ++i) {
    auto& t = tiles_[i];
    if (!t.learning || !t.asked || t.feeder != peer) continue;
    t.kept = t.is_whole_copy();
    if (!t.kept && t.copied) {
      out_.push_back(effect::let_go{tile_id(i)});
      t.parameters = t.parameters_left();
    }
    stop_learning(t);
    ready_sent_ = false;
  }
  if (relevant) complain(peer, why);
  report_missing_links();
}

bool step_protocol::is_relevant(const incarnation& peer) const {
  if (mode_ != mode::running && mode_ != mode::leaving && !(mode_ == mode::adopted && adopted_reported_))
    return false;
  if (plan_->has_member(peer)) return true;
  if (std::find(leavers_.begin(), leavers_.end(), peer) != leavers_.end()) return true;
  // A learner whose plan this worker has voted for may be a member already.
  if (!proposal_ || voted_ != step_ || !proposal_->next.has_member(peer)) return false;
  return votes_.at(step_).at(self_).prepared == proposal_->next.id;
}

void step_protocol::complain(const incarnation& about, const std::string& why) {
  if (!is_relevant(about) || !complained_.insert(about).second) return;
  out_.push_back(effect::report{link_complaint{self_, about, era_, why}});
}

}  // namespace perdura::worker
