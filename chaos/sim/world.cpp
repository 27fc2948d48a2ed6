#include "chaos/sim/world.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "actors/base/check.hpp"

namespace perdura::sim {

namespace {

constexpr micros patience = 3'000'000;  // after the last fault, until all must be well again
constexpr std::uint64_t events_max = 2'000'000;

job_config job_of(const scenario& s) {
  job_config job;
  job.name = "sim";
  job.batch.slots = s.slots;
  job.steps = s.steps;
  job.checkpoint.interval_steps = s.interval;
  job.optimizer.warmup_steps = 5;
  job.optimizer.clip_norm = 0.5;
  constexpr const char* levels[] = {"replicated", "optimizer", "gradients", "parameters"};
  job.sharding = levels[s.sharding];
  job.replicas = s.copies;
  job.elastic.spares = s.spares;
  return job;
}

}  // namespace

world::world(const scenario& run, broken_rules broken, bool trace)
    : scenario_(run),
      broken_(broken),
      trace_(trace),
      job_(job_of(run)),
      tiles_(run.tiles),
      replicas_(run.copies),
      oracle_(job_, run.tiles),
      calm_after_(run.calm_after()) {
  committed_.emplace();  // the seed
  for (std::uint32_t a = 0; a < seats_max; ++a) {
    seats_[a].rng = draws(run.seed, purpose::seat, a);
    for (std::uint32_t b = a + 1; b < seats_max; ++b)
      for (std::uint64_t i = 0; i < 2; ++i) {
        auto& way = links_[a][b].way[i];
        way.rng = draws(run.seed, purpose::link, a, std::uint64_t{b} * 2 + i);
        way.slowness = std::exp2(static_cast<double>(way.rng.between(-2, 4)));
      }
  }
  start_coordinator();
  for (std::uint32_t seat = 0; seat < run.workers; ++seat) start_process(seat);
  for (const auto& f : scenario_.faults) at(f.when, [this, &f] { inject(f); });
}

void world::push(micros when, host* where, task what) {
  events_.push_back({when, order_++, where, std::move(what)});
  std::push_heap(events_.begin(), events_.end());
}

// What happens in a process waits while it is stopped and is lost when it dies.
void world::deliver(host* where, task& what) {
  if (!where) return what();
  if (!where->alive) return;
  if (where->is_held())
    where->deferred.push_back(std::move(what));
  else
    run_in(*where, what);
}

void world::run_in(host& where, task& what) {
  what();
  if (where.is_coordinator) return run_coordinator_effects(*coordinators_[where.index]);
  run_worker_effects(where.index);
  after_event(where.index);
}

// All that waited comes before anything that arrives now.
void world::release(host& where) {
  auto waiting = std::move(where.deferred);
  where.deferred.clear();
  for (auto& what : waiting) deliver(&where, what);
}

void world::trace(const std::string& line) const {
  if (trace_) std::printf("%10.3f ms  %s\n", static_cast<double>(clock_) / 1000, line.c_str());
}

// All live workers are members, copies are restored, and steps go on.
bool world::settled_down() const {
  const auto* c = newest_coordinator();
  if (!c || c->is_held()) return false;
  if (c->logic->where() == coordinator::stage::ended) return true;
  if (c->logic->where() != coordinator::stage::running) return false;
  const auto& s = c->logic->state();
  std::size_t live = 0, spares = 0;
  for (const auto& w : processes_) {
    if (!w->alive) continue;
    ++live;
    if (s.current.has_member(w->id) || c->logic->is_draining(w->id)) continue;
    if (!c->logic->is_spare(w->id) || ++spares > scenario_.spares) return false;
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
      std::pop_heap(events_.begin(), events_.end());
      auto next = std::move(events_.back());
      events_.pop_back();
      clock_ = next.when;
      deliver(next.where, next.what);
      if (++result_.events > events_max) fail("stuck: more events than any run needs");
      if (clock_ <= calm_after_) continue;
      if (!asked_to_resume && newest_coordinator() && clock_ > calm_after_ + 100'000) {
        // A pause asked of a coordinator that was down was never heard to end.
        asked_to_resume = true;
        ask_coordinator(clock_, [this](auto& c) { c.logic->resume(c.now(clock_)); });
      }
      if (clock_ > calm_after_ + patience) fail("stuck: not well again after the last fault");
      if (!settled_down()) {
        well_at.reset();
        continue;
      }
      const auto& logic = *newest_coordinator()->logic;
      if (logic.where() == coordinator::stage::ended) break;
      const auto step = logic.state().newest ? logic.state().newest->step : step_number(0);
      if (!well_at) well_at = step;
      if (step >= *well_at + 3) break;
    }
  } catch (const std::exception& e) {
    result_.violated = e.what();
    trace("VIOLATION " + *result_.violated + "\n" + where_all_are());
  }
  return result_;
}

sim_result run_scenario(const scenario& s, broken_rules broken, bool trace) {
  set_check_handler([](const char*, const char* why) { throw violation(why); });
  return world(s, broken, trace).run();
}

sim_result run_seed(const sim_options& options) {
  return run_scenario(draw_scenario(options.seed), options.broken, options.trace);
}

}  // namespace perdura::sim
