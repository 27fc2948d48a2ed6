#include "chaos/sim/world.hpp"

#include <algorithm>
#include <cstdio>

#include "actors/base/check.hpp"

namespace perdura::sim {

namespace {
constexpr std::int64_t patience_us = 3'000'000;  // after the last fault, until all must be well again
constexpr std::uint64_t events_max = 2'000'000;
}  // namespace

world::world(const sim_options& options) : options_(options), rng_(options.seed * 0x9e3779b97f4a7c15ULL + 1) {
  setup();
}

void world::at(micros when, std::function<void()> what) { events_.push({when, order_++, std::move(what)}); }

// What happens in a process waits while it is stopped and is lost when it dies.
void world::on_process(std::size_t p, micros when, std::function<void()> what) {
  at(when, [this, p, what = std::move(what)]() mutable {
    auto& w = *processes_[p];
    if (!w.alive) return;
    if (w.stopped) {
      w.deferred.push_back(std::move(what));
      return;
    }
    run_in(p, what);
  });
}

void world::run_in(std::size_t p, const std::function<void()>& what) {
  what();
  run_worker_effects(p);
  after_event(p);
}

void world::trace(const std::string& line) const {
  if (options_.trace) std::printf("%10.3f ms  %s\n", static_cast<double>(clock_) / 1000, line.c_str());
}

void world::setup() {
  job_.name = "sim";
  job_.batch.slots = 1U << random(1, 4);
  // Some runs end, most go on until the faults are over and everybody is well.
  job_.steps = chance(0.3) ? static_cast<std::uint64_t>(random(10, 60)) : 1'000'000;
  job_.checkpoint.interval_steps = static_cast<std::uint64_t>(random(3, 12));
  job_.optimizer.warmup_steps = 5;
  job_.optimizer.clip_norm = 0.5;
  tiles_ = static_cast<std::uint32_t>(random(1, 4));
  const std::uint16_t copies[] = {0, 0, 0, 1, 2, 2, 2, 3};
  replicas_ = copies[random(0, 7)];
  const char* levels[] = {"optimizer", "gradients", "parameters"};
  job_.sharding = replicas_ == 0 ? "replicated" : levels[random(0, 2)];
  job_.replicas = replicas_;
  oracle_ = std::make_unique<oracle>(job_, tiles_);
  quiet_after_ = random(20'000, 250'000);
  if (chance(0.3)) crash_between_effects_ = 0.01;
  start_coordinator();
  const auto workers = random(1, 5);
  for (micros i = 0; i < workers; ++i) start_process();
  tick();
  plan_faults();
}

void world::plan_faults() {
  const auto mean = random(3'000, 60'000);
  for (micros when = random(0, mean); when < quiet_after_; when += random(1, 2 * mean))
    at(when, [this] { inject_fault(); });
}

void world::inject_fault() {
  std::vector<std::size_t> live;
  for (std::size_t p = 0; p < processes_.size(); ++p)
    if (processes_[p]->alive) live.push_back(p);
  if (live.empty()) return;
  const auto victim = live[rng_() % live.size()];
  const auto other = live[rng_() % live.size()];
  switch (random(0, 11)) {
    case 0:
    case 1: return kill_process(victim, "fault");
    case 2: kill_process(victim, "fault"); return kill_process(other, "fault");
    case 3:
    case 4:
      trace("break w" + std::to_string(victim) + "-w" + std::to_string(other));
      if (victim != other) break_link(victim, other, true);
      return;
    case 5: return break_control(victim, true);
    case 6: return crash_coordinator();
    case 7: {
      trace("stop w" + std::to_string(victim));
      processes_[victim]->stopped = true;
      at(clock_ + random(1000, 120'000), [this, victim] {
        auto& w = *processes_[victim];
        trace("continue w" + std::to_string(victim));
        w.stopped = false;
        auto waiting = std::move(w.deferred);
        w.deferred.clear();
        // All that waited comes before anything that arrives now.
        for (std::size_t i = 0; i < waiting.size() && w.alive; ++i) run_in(victim, waiting[i]);
      });
      return;
    }
    case 8:
      trace("suspect w" + std::to_string(victim));
      return with_coordinator([&](auto& c) { c.lost(processes_[victim]->id, "suspected", now()); });
    case 9:
      if (live.size() < 2) return;
      trace("drain w" + std::to_string(victim));
      with_coordinator([&](auto& c) { c.drain({processes_[victim]->id}, std::nullopt, "fault", now()); });
      // Now and then all that it leaves for die while it goes.
      if (chance(0.3))
        at(clock_ + random(500, 12'000), [this, victim] {
          for (std::size_t p = 0; p < processes_.size(); ++p)
            if (p != victim) kill_process(p, "fault");
        });
      // A drained worker is taken away a little later; another comes.
      return at(clock_ + random(5'000, 60'000), [this, victim] { kill_process(victim, "drained"); });
    case 10: return with_coordinator([&](auto& c) { c.snapshot_now(now()); });
    case 11:
      if (processes_.size() < 12) start_process();
      trace("pause");
      with_coordinator([&](auto& c) { c.pause(now()); });
      return at(clock_ + random(1000, 30'000), [this] {
        trace("resume");
        with_coordinator([&](auto& c) { c.resume(now()); });
      });
  }
}

// All live workers are members, copies are restored, and steps go on.
bool world::settled_down() const {
  if (!coordinator_) return false;
  if (coordinator_->where() == coordinator::stage::ended) return true;
  if (coordinator_->where() != coordinator::stage::running) return false;
  const auto& s = coordinator_->state();
  std::size_t live = 0;
  for (const auto& w : processes_) {
    if (!w->alive) continue;
    ++live;
    if (!s.current.has_member(w->id) && !coordinator_->is_draining(w->id)) return false;
  }
  if (s.current.members.size() > live || s.current.action != plan_action::train) return false;
  const auto wanted =
      replicas_ == 0 ? s.current.members.size() : std::min<std::size_t>(replicas_, s.current.members.size());
  return std::all_of(s.current.holders.begin(), s.current.holders.end(),
                     [&](const auto& h) { return h.size() >= wanted; });
}

sim_result world::run() {
  try {
    std::optional<step_number> well_at;
    bool asked_to_resume = false;
    while (!events_.empty()) {
      auto next = std::move(const_cast<event&>(events_.top()));
      events_.pop();
      clock_ = next.when;
      next.what();
      if (++result_.events > events_max) fail("stuck: more events than any run needs");
      if (clock_ <= quiet_after_) continue;
      if (!asked_to_resume && coordinator_ && clock_ > quiet_after_ + 100'000) {
        // A pause asked of a coordinator that was down was never heard to end.
        asked_to_resume = true;
        with_coordinator([&](auto& c) { c.resume(now()); });
      }
      if (clock_ > quiet_after_ + patience_us) fail("stuck: not well again after the last fault");
      if (!settled_down()) {
        well_at.reset();
        continue;
      }
      if (coordinator_->where() == coordinator::stage::ended) break;
      const auto step = coordinator_->state().newest ? coordinator_->state().newest->step : step_number(0);
      if (!well_at) well_at = step;
      if (step >= *well_at + 3) break;
    }
  } catch (const std::exception& e) {
    result_.violated = e.what();
    trace("VIOLATION " + *result_.violated + "\n" + where_all_are());
  }
  return result_;
}

sim_result run_seed(const sim_options& options) {
  set_check_handler([](const char*, const char* why) { throw violation(why); });
  return world(options).run();
}

}  // namespace perdura::sim
