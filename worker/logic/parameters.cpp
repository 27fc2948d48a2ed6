// Parameters of tiles that a member computes with and does not hold: sent by their owners after each apply,
// or asked for where parameters are sharded.
#include <utility>

#include "worker/logic/step_protocol.hpp"

namespace perdura::worker {

void step_protocol::spread_parameters(tile_id tile) {
  const auto& t = tiles_[tile.value];
  if (gathers() || !is_member() || !t.held || t.applied != step_ - 1 || plan_->owner(tile) != self_) return;
  if (plan_->holders[tile.value].size() == plan_->members.size()) return;
  out_.push_back(effect::read_parameters{tile, t.applied});
}

void step_protocol::parameters_read(tile_id tile, step_number version, blob values) {
  if (gathers()) {
    const auto reading = std::exchange(reading_[tile], {});
    if (!is_running()) return;
    for (const auto& [step, who] : reading)
      if (step == version || broken(rule::answer_at_version)) send(who, step, parameters_frame{tile, values});
    return;
  }
  if (mode_ != mode::running || !is_member() || version != step_ - 1 || plan_->owner(tile) != self_) return;
  for (const auto& m : plan_->members)
    if (!plan_->holds(m.who, tile)) send(m.who, version, parameters_frame{tile, values});
}

void step_protocol::on_parameters(const frame& f, const parameters_frame& p) {
  if (!is_member() || p.tile.value >= tile_count_) return;
  auto& t = tiles_[p.tile.value];
  const auto wanted = step_ - 1;
  // A learner's copy brings its parameters itself, and must not be overwritten.
  if (t.held || (t.learning && t.copied)) return;
  if (f.step != wanted && !broken(rule::tag_parameters)) return;
  if (gathers()) {
    if (wanted_parameters_.erase(p.tile) > 0)
      out_.push_back(effect::install_parameters{p.tile, f.step, p.values});
    return;
  }
  if (t.parameters == wanted) return;
  t.parameters = wanted;
  out_.push_back(effect::install_parameters{p.tile, f.step, p.values});
  maybe_compute();
}

// ---- asked for

void step_protocol::parameters_wanted(step_number step, tile_id tile) {
  if (step != step_ || !plan_) return;
  wanted_parameters_.insert(tile);
  // Before the start of a plan nobody answers; resend_step asks then.
  if (mode_ == mode::running) send(plan_->owner(tile), step_ - 1, parameters_request{tile});
}

void step_protocol::on_request(const frame& f, const parameters_request& r) {
  if (r.tile.value >= tile_count_) return;
  requests_[r.tile].emplace(f.step, f.from);
  answer_requests(r.tile);
}

// At the very version asked for. Older ones are not needed any more: what has been applied was decided, so
// all blocks were computed. Newer ones wait.
void step_protocol::answer_requests(tile_id tile) {
  const auto waiting = requests_.find(tile);
  const auto& t = tiles_[tile.value];
  if (waiting == requests_.end() || !is_running() || !t.held || t.applied != t.version) return;
  bool reads = false;
  for (auto it = waiting->second.begin(); it != waiting->second.end();) {
    const bool fits = it->first == t.applied || broken(rule::answer_at_version);
    if (it->first > t.applied && !fits) break;
    if (fits) {
      reading_[tile].insert(*it);
      reads = true;
    }
    it = waiting->second.erase(it);
  }
  if (reads) out_.push_back(effect::read_parameters{tile, t.applied});
}

}  // namespace perdura::worker
