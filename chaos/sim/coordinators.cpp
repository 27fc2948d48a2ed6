// What coordinator/coordinator_shell.cpp does in the process; two of them for a while, when one takes over.
#include <algorithm>

#include "actors/base/overloaded.hpp"
#include "chaos/sim/world.hpp"

namespace perdura::sim {

namespace ce = coordinator::effect;

world::coordinator_process* world::newest_coordinator() {
  return coordinators_.empty() || !coordinators_.back()->alive ? nullptr : coordinators_.back().get();
}
const world::coordinator_process* world::newest_coordinator() const {
  return coordinators_.empty() || !coordinators_.back()->alive ? nullptr : coordinators_.back().get();
}

void world::start_coordinator() {
  auto made = std::make_unique<coordinator_process>();
  auto& c = *made;
  c.index = coordinators_.size();
  c.is_coordinator = true;
  c.term = disk_.claimed = disk_.claimed + 1;
  c.rng = draws(scenario_.seed, purpose::coordinator, c.term.value);
  // Clocks differ: in what they say, and a little in how fast they run.
  c.clock_offset = c.rng.between(0, 1'000'000'000);
  c.clock_rate = 0.8 + 0.05 * static_cast<double>(c.rng.between(0, 9));
  c.leases.emplace(std::chrono::microseconds(lease), broken_);
  c.persisted = disk_.synced;
  if (!disk_.unsynced.empty()) c.persisted.newest = disk_.unsynced.back();
  disk_.synced = c.persisted;
  disk_.unsynced.clear();
  trace("coordinator starts, term " + to_string(c.term));
  coordinator::supervisor_options o;
  o.tiles = tiles_;
  o.replicas = replicas_;
  o.lease = std::chrono::milliseconds(lease / 1000);
  o.gather = std::chrono::milliseconds(10);
  o.learn_timeout = std::chrono::hours(1);
  o.final_checkpoint = std::chrono::milliseconds(50);
  o.adopt_timeout = std::chrono::hours(1);           // a watchdog would hide deadlocks
  o.link_patience = std::chrono::milliseconds(200);  // longer than silence lasts
  o.probation = std::chrono::milliseconds(100);
  o.slow.consider_every = std::chrono::milliseconds(5);
  o.slow.patience = std::chrono::milliseconds(40);
  o.slow.between = slow_between;
  c.began = clock_;
  c.logic = std::make_unique<coordinator::supervisor>(c.term, job_, o, c.persisted, checkpoint_, c.out,
                                                      c.now(clock_), broken_);
  coordinators_.push_back(std::move(made));
  tick(c);
  for (const auto& w : processes_)
    if (w->alive && (!w->control || !w->control->open))
      at(clock_ + seats_[w->seat].rng.between(100, 5'000), [this, p = w->index] { connect_control(p); });
}

void world::crash_coordinator(coordinator_process& c, bool with_machine, micros back_after) {
  if (!c.alive) return;
  trace("coordinator of term " + to_string(c.term) + " crashes" + (with_machine ? " with its machine" : ""));
  // A write under way may or may not have been done.
  if (c.writing && c.rng.chance(0.5))
    if (const auto* x = std::get_if<ce::persist>(&c.waiting.front())) write(c, *x->state);
  c.alive = c.writing = false;
  c.deferred.clear();
  c.waiting.clear();
  c.out.clear();
  if (with_machine && c.term == disk_.claimed)
    disk_.unsynced.resize(
        static_cast<std::size_t>(c.rng.between(0, static_cast<micros>(disk_.unsynced.size()))));
  for (const auto& w : processes_)
    if (w->alive && w->control && w->control->with == &c) break_control(w->index);
  if (c.term == disk_.claimed) at(clock_ + back_after, [this] { start_coordinator(); });
}

// The next term is claimed while the old coordinator lives: it cannot write any more, but says what it says,
// and the workers come over one by one.
void world::take_over(micros old_lives_on) {
  auto* old = newest_coordinator();
  if (!old) return;
  start_coordinator();
  for (const auto& w : processes_) {
    if (!w->alive || !w->control || w->control->with != old || !w->control->open) continue;
    at(clock_ + seats_[w->seat].rng.between(0, old_lives_on), [this, p = w->index, on = w->control] {
      if (!on->open || processes_[p]->control != on) return;
      on->open = false;
      on->lost = seats_[processes_[p]->seat].rng.chance(0.5);
      connect_control(p);
    });
  }
  at(clock_ + old_lives_on, [this, old] { crash_coordinator(*old, false, 0); });
}

// ---- effects

// False: another term has been claimed, and this process ends, for it must not say what is not written down.
bool world::write(coordinator_process& c, const coordinator::durable_state& s) {
  if (c.term != disk_.claimed) return false;
  disk_.synced = c.persisted = s;
  disk_.unsynced.clear();
  return true;
}

void world::run_coordinator_effects(coordinator_process& c) {
  while (c.alive && !c.writing) {
    if (c.waiting.empty()) {
      if (c.out.empty()) return;
      std::move(c.out.begin(), c.out.end(), std::back_inserter(c.waiting));
      c.out.clear();
    }
    if (std::holds_alternative<ce::persist>(c.waiting.front()) && clock_ < disk_.slow_until) {
      c.writing = true;
      return at(clock_ + disk_.write_takes, [this, &c] {
        if (!c.alive) return;
        c.writing = false;
        run_effect(c, c.waiting.front());
        if (!c.alive) return;
        c.waiting.pop_front();
        run_coordinator_effects(c);
        if (c.alive && !c.is_held()) release(c);
      });
    }
    const auto item = std::move(c.waiting.front());
    c.waiting.pop_front();
    run_effect(c, item);
    if (c.alive && crash_trap_ && clock_ < calm_after_ && crash_trap_->after-- == 0) {
      const auto trap = *crash_trap_;
      crash_trap_.reset();
      return crash_coordinator(c, trap.with_machine, trap.lasts);
    }
  }
}

void world::run_effect(coordinator_process& c, const coordinator::effects_item& item) {
  std::visit(
      overloaded{
          [&](const ce::persist& x) {
            if (!write(c, *x.state)) crash_coordinator(c, false, 0);
          },
          [&](const ce::record& x) {
            if (c.term == disk_.claimed) disk_.unsynced.push_back(x.newest);
          },
          [&](const ce::send& x) {
            check_order(c, *x.order);
            tell_worker(c, x.to, *x.order);
          },
          [&](const ce::note& x) {
            trace("  " + std::string(to_string(x.what.kind)) + " " + x.what.subject + ": " + x.what.reason);
            check_note(c, x.what);
            if (x.what.kind == coordinator::event_kind::worker_left) let_links_go(x.what);
          },
          [&](const ce::collect& x) {
            if (c.logic->is_fenced(x.chunk.who)) fail("a fenced worker's chunk was counted");
            collect_chunk(c, x.chunk);
          },
          [&](const ce::kill& x) {
            const auto p = index_of(x.who);
            // Its agent is on the same machine: out of reach with it.
            if (seats_[processes_[p]->seat].down_silent_until <= clock_) kill_process(p, x.why);
          },
          [&](const ce::end& x) { end_job(x); },
      },
      item);
}

// The shell tells a worker that has left, and the others, to hold no links to each other any more.
void world::let_links_go(const coordinator::event& left) {
  for (const auto& [key, value] : left.fields) {
    if (key != "incarnation") continue;
    const auto seat = processes_[index_of(parse_incarnation(value))]->seat;
    for (std::uint32_t other = 0; other < seats_max; ++other)
      if (other != seat) break_link(seat, other);
  }
}

void world::end_job(const ce::end& x) {
  if (x.how != coordinator::event_kind::job_finished) fail("the job ended: " + x.why);
  for (std::uint32_t t = 0; t < tiles_; ++t) {
    const auto& want = oracle_.tile(step_number(job_.steps), t);
    if (x.tile_hashes[t] != mix(want.parameters, want.moments)) fail("the final hash is another");
  }
}

void world::collect_chunk(coordinator_process& c, const chunk_report& chunk) {
  auto& tiles = c.chunks[{chunk.timeline, chunk.step}];
  tiles.insert(chunk.tile);
  if (tiles.size() < tiles_) return;
  c.chunks.erase({chunk.timeline, chunk.step});
  const auto v = verdicts_.find({chunk.timeline, chunk.step});
  if (v == verdicts_.end()) fail("a snapshot of a step that was never decided");
  // The manifest is written by a thread of its own.
  at(clock_ + c.rng.between(100, 3'000), [this, &c, standing = v->second] {
    if (!c.alive) return;
    const coordinator::restore_point made{{standing.step, standing.timeline}, standing};
    const auto& best = checkpoint_.source;
    committed_.emplace(standing.timeline, standing.step);
    if (std::pair(standing.timeline, standing.step) <= std::pair(best.timeline, best.step)) return;
    checkpoint_ = made;
    trace("  checkpoint of step " + to_string(standing.step));
    task hears = [&c, this, made] { c.logic->checkpoint_committed(made, c.now(clock_)); };
    deliver(&c, hears);
  });
}

// ---- events

void world::hear(coordinator_process& c, const worker_message& m) {
  const auto who = std::visit([](const auto& x) { return x.who; }, m);
  const bool is_fenced = c.logic->is_fenced(who);
  if (!is_fenced && std::holds_alternative<worker_hello>(m)) c.known.insert(who);
  if (c.known.contains(who)) c.leases->renew(who);
  if (!is_fenced && !c.known.contains(who)) return;
  const auto before = c.out.size();
  if (const auto* hello = std::get_if<worker_hello>(&m))
    c.logic->arrived(*hello, labels_of(processes_[index_of(who)]->seat), c.now(clock_));
  else
    c.logic->received(m, c.now(clock_));
  if (!is_fenced) return;
  for (std::size_t i = before; i < c.out.size(); ++i) {
    const auto* answer = std::get_if<ce::send>(&c.out[i]);
    if (!answer || answer->to != who) fail("something a fenced worker said was counted");
  }
}

void world::lose(coordinator_process& c, const incarnation& who, const std::string& why) {
  if (c.known.erase(who) == 0) return;
  c.leases->forget(who);
  c.logic->lost(who, why, c.now(clock_));
}

void world::tick(coordinator_process& c) {
  const auto period = static_cast<micros>(5'000 / c.clock_rate);
  push(clock_ + period, &c, [this, &c] {
    c.leases->tick(c.now(clock_));
    check_leases(c);
    c.logic->tick(c.now(clock_));
    tick(c);
  });
}

void world::check_leases(coordinator_process& c) {
  for (const auto& who : c.leases->expired()) {
    // What has arrived at this process counts as heard, though it may have slept since.
    const auto silent = static_cast<double>(clock_ - c.arrived_from[who]) * c.clock_rate;
    if (silent < static_cast<double>(lease) * 0.9) fail("a lease expired although its worker was heard");
    lose(c, who, "its lease expired");
  }
}

}  // namespace perdura::sim
