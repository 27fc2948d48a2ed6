#include <algorithm>

#include "chaos/sim/world.hpp"

namespace perdura::sim {

void world::fail(const std::string& what) const { throw violation(what); }

// For whoever reads why nothing moves any more.
std::string world::where_all_are() const {
  std::string text = newest_coordinator()
                         ? std::string("coordinator ") + to_string(newest_coordinator()->logic->where()) +
                               " era " + to_string(newest_coordinator()->logic->state().at)
                         : "no coordinator";
  for (std::size_t p = 0; p < processes_.size(); ++p) {
    const auto& w = *processes_[p];
    if (!w.alive) continue;
    text += "\n  w" + std::to_string(p) + " era " + to_string(w.logic->promised()) + " plan " +
            (w.logic->current() ? to_string(w.logic->current()->id) : "none") + " step " +
            to_string(w.logic->step()) + " " + to_string(w.logic->where()) +
            (w.control && w.control->open ? "" : " (no coordinator)") + (w.stopped ? " (stopped)" : "");
    for (std::uint32_t t = 0; t < tiles_; ++t)
      text += (w.logic->holds(tile_id(t)) ? " [" : " (") + to_string(w.logic->version(tile_id(t)));
  }
  return text;
}

// Every tile, wherever it is, has the bits of the run that never failed.
void world::check_tile(std::size_t p, tile_id tile, step_number version) {
  const auto& have = processes_[p]->tiles[tile.value];
  if (have != oracle_.tile(version, tile.value))
    fail("tile " + to_string(tile) + " of w" + std::to_string(p) + " at version " + to_string(version) +
         " has other bits");
}

// A block is computed from the parameters of the step before, held and gathered ones alike.
void world::check_parameters(std::size_t p, step_number version) {
  for (std::uint32_t t = 0; t < tiles_; ++t)
    if (processes_[p]->tiles[t].parameters != oracle_.tile(version, t).parameters)
      fail("w" + std::to_string(p) + " computes with parameters of tile " + std::to_string(t) +
           " that are not those of version " + to_string(version));
}

// One outcome a step, the oracle's; one plan an era and step.
void world::check_verdict(std::size_t p, const verdict& v) {
  auto want = oracle_.outcome(v.step);
  if (!(v.outcome == want)) fail("the verdict of step " + to_string(v.step) + " has another outcome");
  const auto [it, is_new] = verdicts_.emplace(std::pair{v.timeline, v.step}, v);
  if (!is_new && it->second.plan.at == v.plan.at && !(it->second == v))
    fail("two verdicts of step " + to_string(v.step) + " in one era");
  if (is_new || v.plan > it->second.plan) it->second = v;
  const auto [plan, is_first] = plans_.emplace(std::pair{v.plan.at, v.step}, v.plan);
  if (!is_first && plan->second != v.plan) fail("two plans of one step in one era");
  // The first to see a plan change is the worst to lose.
  if (is_new && v.next_plan != v.plan && switch_trap_ && clock_ < calm_after_ && switch_trap_->after-- == 0) {
    at(clock_ + switch_trap_->lasts, [this, p] { kill_process(p, "fault, right after a plan changed"); });
    switch_trap_.reset();
  }
  auto& top = highest_[v.timeline];
  top = std::max(top, v.step);
}

// Whoever ends because it is fenced is fenced.
void world::check_end(std::size_t p, const std::string& why) const {
  if (!why.starts_with("fenced")) return;
  const auto& who = processes_[p]->id;
  const bool is_fenced = std::any_of(coordinators_.begin(), coordinators_.end(),
                                     [&](const auto& c) { return c->logic->is_fenced(who); });
  if (!is_fenced) fail("w" + std::to_string(p) + " ended as fenced, but is not");
}

// Within an era a tile's gradient of a step is finished by one worker.
void world::check_owner(std::size_t p, step_number step, tile_id tile) {
  const auto [it, is_new] = owners_.emplace(std::tuple(processes_[p]->logic->promised(), step, tile), p);
  if (!is_new && it->second != p)
    fail("two owners of tile " + to_string(tile) + " in step " + to_string(step));
}

// What is said is written down, and is a plan that can be carried out.
void world::check_order(const coordinator_process& c, const coordinator_order& o) {
  const auto& on_disk = c.persisted;
  if (const auto* f = std::get_if<fence_order>(&o); f && on_disk.at < f->at)
    fail("an era was opened that is not written down");
  if (const auto* r = std::get_if<recover_order>(&o)) {
    if (on_disk.recovery != *r) fail("a decision was sent that is not written down");
    if (on_disk.timeline < r->timeline) fail("a timeline was opened that is not written down");
    if (planned_.insert(r->next.id).second) check_plan(on_disk, r->next, false);
    check_recovery(c, *r);
  }
  if (const auto* s = std::get_if<start_order>(&o); s && !(on_disk.started && on_disk.at == s->at))
    fail("a plan was started, which is not written down");
  if (const auto* p = std::get_if<proposal_order>(&o)) {
    if (on_disk.pending != *p) fail("a plan was proposed that is not written down");
    if (!on_disk.releasing.empty()) fail("a plan was proposed before all leavers of the last had let go");
    // With a deadline near, only the copies are made that would be lost.
    const bool hurries = std::any_of(on_disk.draining.begin(), on_disk.draining.end(),
                                     [](const auto& d) { return d.within_ms > 0; });
    if (planned_.insert(p->next.id).second) check_plan(on_disk, p->next, !hurries);
  }
}

void world::check_plan(const coordinator::durable_state& on_disk, const plan& next,
                       bool restores_copies) const {
  std::vector<block> blocks;
  for (const auto& m : next.members) {
    blocks.insert(blocks.end(), m.blocks.begin(), m.blocks.end());
    const auto& fenced = on_disk.fenced;
    if (std::find(fenced.begin(), fenced.end(), m.who) != fenced.end())
      fail("a fenced worker was made a member");
  }
  std::sort(blocks.begin(), blocks.end());
  std::uint32_t covered = 0;
  for (const auto& b : blocks) {
    if (b.first != covered || !is_aligned(b)) fail("a plan's blocks do not cover its slots once");
    covered = b.end();
  }
  if (covered != job_.batch.slots || next.holders.size() != tiles_) fail("a plan leaves something to nobody");
  const auto all = next.members.size();
  const auto wanted = replicas_ == 0 ? all : std::min<std::size_t>(replicas_, all);
  for (auto holders : next.holders) {
    if (restores_copies && holders.size() < wanted) fail("a plan gives a tile too few holders");
    std::sort(holders.begin(), holders.end());
    if (holders.empty() || holders.back() >= all ||
        std::adjacent_find(holders.begin(), holders.end()) != holders.end())
      fail("a plan's holders are no members, or the same twice");
  }
}

// A decision never abandons what was decided, but on a new timeline, and that only when no survivor could go
// on.
void world::check_recovery(const coordinator_process& c, const recover_order& r) {
  const auto [known, is_new] = recoveries_.emplace(r.at, r);
  if (!is_new) {
    if (!(known->second == r)) fail("two decisions in era " + to_string(r.at));
    return;
  }
  ++result_.recoveries;
  if (r.restore) {
    ++result_.restores;
    if (r.timeline <= newest_timeline_) fail("state was restored without a new timeline");
    newest_timeline_ = r.timeline;
    const auto& before = c.logic->state().current;
    const auto top = highest_[r.timeline - 1];
    // Could a survivor have gone on? Look at what they hold, not at what they say.
    std::vector<bool> held(tiles_);
    bool has_member = false;
    for (const auto& w : processes_) {
      if (!r.next.has_member(w->id) || w->logic->timeline() != r.timeline - 1) continue;
      if (before.has_member(w->id)) has_member = true;
      for (std::uint32_t t = 0; t < tiles_; ++t)
        if (w->logic->holds(tile_id(t)) && w->logic->version(tile_id(t)) == top) held[t] = true;
    }
    if (r.settled < top && has_member && std::all_of(held.begin(), held.end(), [](bool h) { return h; }))
      fail("a timeline was abandoned although survivors hold step " + to_string(top));
    return;
  }
  if (r.timeline != newest_timeline_) fail("a recovery went back to an older timeline");
  const auto top = highest_[r.timeline];
  if (r.settled + 1 < top)
    fail("settled on step " + to_string(r.settled) + " although " + to_string(top) + " was decided");
  if (r.standing && !(r.standing->outcome == oracle_.outcome(r.settled)))
    fail("a standing verdict was edited");
}

// Whoever lets a tile go leaves it with all of its new holders.
void world::check_letting_go(std::size_t p) {
  auto& w = *processes_[p];
  // The verdict that lets go of what moved off may name the next plan as well: the holders are those before
  // it.
  const auto under = w.known;
  if (const auto* plan = w.logic->current(); plan && (!w.known || w.known->id != plan->id)) w.known = *plan;
  const bool recovering = w.logic->where() == worker_phase::settling || w.logic->promised() != w.era_before;
  w.era_before = w.logic->promised();
  for (std::uint32_t t = 0; t < tiles_; ++t) {
    const bool holds = w.logic->holds(tile_id(t));
    const bool lets_go =
        w.held_before[t] && !holds && !recovering && under && under->id.at == w.logic->promised();
    w.held_before[t] = holds;
    if (!lets_go) continue;
    for (const auto index : under->holders[t]) {
      const auto& holder = *processes_[index_of(under->members[index].who)];
      const bool comparable = holder.alive && holder.logic->promised() == w.logic->promised();
      if (comparable && !holder.logic->holds(tile_id(t)))
        fail("w" + std::to_string(p) + " let tile " + std::to_string(t) + " go before w" +
             std::to_string(index_of(holder.id)) + " held it");
    }
  }
}

void world::after_event(std::size_t p) {
  auto& w = *processes_[p];
  if (!w.alive) return;
  check_letting_go(p);
  if (const auto& v = w.logic->newest(); v && v->step > w.seen) {
    result_.worker_steps += w.seen.value == 0 ? 1 : v->step.value - w.seen.value;
    w.seen = v->step;
  }
}

}  // namespace perdura::sim
