#include <algorithm>
#include <utility>

#include "actors/base/overloaded.hpp"
#include "chaos/sim/world.hpp"

namespace perdura::sim {

namespace e = perdura::worker::effect;

std::size_t world::start_process() {
  const auto p = processes_.size();
  auto w = std::make_unique<process>();
  // Incarnations are random, so a newcomer sorts anywhere among the others.
  w->id = {rng_() | 1U, p + 1};
  w->tiles.resize(tiles_);
  w->held_before.resize(tiles_);
  w->resident.resize(tiles_);
  w->has_state.resize(tiles_);
  w->slowness = std::exp2(static_cast<double>(random(-2, 2)));
  w->logic = std::make_unique<worker::step_protocol>(w->id, job_, tiles_, w->out, options_.broken);
  processes_.push_back(std::move(w));
  trace("start w" + std::to_string(p) + " " + short_name(processes_[p]->id));
  for (std::size_t other = 0; other < p; ++other) {
    if (!processes_[other]->alive) continue;
    auto& l = link_of(p, other);
    for (auto& way : l.way) way.slowness = std::exp2(static_cast<double>(random(-2, 4)));
    at(clock_ + random(100, 3000), [this, p, other] { connect_link(p, other); });
  }
  at(clock_ + random(100, 3000), [this, p] { connect_control(p); });
  heartbeat(p);
  return p;
}

void world::kill_process(std::size_t p, const std::string& why) {
  auto& w = *processes_[p];
  if (!w.alive) return;
  trace("kill w" + std::to_string(p) + ": " + why);
  w.alive = false;
  w.deferred.clear();
  if (chance(0.3)) ++w.session;  // with its machine: what it said last is lost too
  for (std::size_t other = 0; other < processes_.size(); ++other)
    if (other != p && processes_[other]->alive) break_link(p, other, false);
  at(clock_ + random(500, 4000), [this, p] {
    with_coordinator([&](auto& c) { c.lost(processes_[p]->id, "its process ended", now()); });
  });
  at(clock_ + random(1000, 20000), [this] { start_process(); });
}

// ---- the worker's shell
// --------------------------------------------------------------------------------------

void world::on_lane(std::size_t p, micros cost, std::function<void()> work, std::function<void()> done) {
  auto& w = *processes_[p];
  w.lane_free =
      std::max(w.lane_free, clock_) + 1 + static_cast<micros>(static_cast<double>(cost) * w.slowness);
  on_process(p, w.lane_free, [work = std::move(work), done = std::move(done)] {
    work();
    done();
  });
}

void world::run_worker_effects(std::size_t p) {
  auto& w = *processes_[p];
  while (!w.out.empty() && w.alive) {
    auto batch = std::move(w.out);
    w.out.clear();
    for (auto& e : batch) {
      if (!w.alive) return;
      run_worker_effect(p, e);
    }
  }
}

// What worker/worker_shell.cpp does in the process.
struct world::worker_effects {
  world& sim;
  const std::size_t p;
  process& w = *sim.processes_[p];
  worker::step_protocol* const logic = w.logic.get();

  // Costs in microseconds of a worker of normal speed.
  void lane(micros cost, std::function<void()> work, std::function<void()> done) const {
    sim.on_lane(p, cost, std::move(work), std::move(done));
  }

  void operator()(e::send& x) { sim.send_frame(p, x.to, std::move(x.what)); }
  void operator()(e::report& x) {
    if (const auto* v = std::get_if<verdict_report>(&x.what)) sim.check_verdict(p, v->observed);
    sim.tell_coordinator(p, std::move(x.what));
  }
  void operator()(e::compute& x) {
    if (w.computing_step != x.step) w.attempts.clear();
    w.computing_step = x.step;
    w.attempts[x.slots] = ++w.attempt;
    if (level_of(sim.job_) != sharding_level::parameters) return compute(x.step, x.slots, w.attempt);
    w.gathering.emplace_back(x.slots, w.attempt);
    compute_gathered();
  }
  void operator()(e::keep_only& x) {
    if (w.computing_step != x.step) w.attempts.clear();
    std::erase_if(w.attempts, [&](const auto& a) {
      return std::find(x.blocks.begin(), x.blocks.end(), a.first) == x.blocks.end();
    });
  }
  // Asks for what a block still needs; true when all is here.
  bool gathered(step_number step) const {
    bool complete = true;
    for (std::uint32_t t = 0; t < sim.tiles_; ++t) {
      if (w.resident[t] == step - 1) continue;
      complete = false;
      logic->parameters_wanted(step, tile_id(t));
    }
    return complete;
  }
  void compute_gathered() const {
    for (auto& [b, attempt] : std::exchange(w.gathering, {})) {
      if (!sim.is_wanted(p, w.computing_step, b, attempt)) continue;
      if (gathered(w.computing_step))
        compute(w.computing_step, b, attempt);
      else
        w.gathering.emplace_back(b, attempt);
    }
  }
  void compute(step_number step, block slots, std::uint64_t attempt) const {
    auto result = std::make_shared<worker::computed_block>();
    const bool streams = level_of(sim.job_) >= sharding_level::gradients;
    const bool gathers = level_of(sim.job_) == sharding_level::parameters;
    lane(
        micros{200} * slots.size,
        [this_ = *this, step, slots, attempt, gathers, result] {
          if (!this_.sim.is_wanted(this_.p, step, slots, attempt)) return;
          if (gathers && !this_.gathered(step)) return;  // something was let go meanwhile
          this_.sim.check_parameters(this_.p, step - 1);
          const auto parameters = fold(this_.w.tiles);
          for (std::uint32_t t = 0; t < this_.sim.tiles_; ++t)
            result->tiles.push_back(to_blob(block_value(parameters, step, slots, t)));
        },
        [this_ = *this, step, slots, attempt, streams, result] {
          if (!this_.sim.is_wanted(this_.p, step, slots, attempt)) return;
          if (result->tiles.empty()) return this_.w.gathering.emplace_back(slots, attempt), void();
          if (streams) return;
          this_.w.attempts.erase(slots);
          this_.logic->block_computed(step, slots, std::move(*result));
        });
    for (std::uint32_t t = 0; t < sim.tiles_ && streams; ++t)
      lane(
          micros{20} * slots.size, [] {},
          [this_ = *this, step, slots, attempt, result, t] {
            if (result->tiles.empty() || !this_.sim.is_wanted(this_.p, step, slots, attempt)) return;
            this_.logic->tile_computed(step, slots, tile_id(t), {slots, 0, result->tiles[t]});
            if (t + 1 < this_.sim.tiles_) return;
            this_.w.attempts.erase(slots);
            this_.free_gathered();
            this_.logic->block_computed(step, slots, {});
          });
  }
  // Behind the pass: what is used after this is a finding.
  void free_gathered() const {
    if (level_of(sim.job_) != sharding_level::parameters || !w.attempts.empty()) return;
    for (std::uint32_t t = 0; t < sim.tiles_; ++t) {
      if (logic->keeps(tile_id(t))) continue;
      w.tiles[t] = {0xdead, 0};
      w.resident[t].reset();
    }
  }
  void operator()(e::reduce& x) {
    auto g = std::make_shared<reduced_frame>();
    lane(
        20,
        [x, g, slots = sim.job_.batch.slots] {
          struct {
            const std::vector<worker::partial>& parts;
            std::size_t i = 0;
            std::pair<block, std::uint64_t> peek() const {
              return {parts[i].slots, to_value(parts[i].gradient)};
            }
            void pop() { ++i; }
          } next{x.partials};
          const auto value = finish_tree({0, slots}, next);
          *g = {x.tile, norm2_of(value), true, loss_of(value), to_blob(value)};
        },
        [to = logic, x, g] { to->tile_reduced(x.step, x.tile, *g); });
  }
  void operator()(e::apply& x) {
    lane(
        50,
        [this_ = *this, x] {
          if (!this_.w.has_state[x.tile.value]) return;  // its copy came damaged, or it was let go
          auto& t = this_.w.tiles[x.tile.value];
          t = applied(t, to_value(x.gradient), x.outcome);
          this_.w.resident[x.tile.value] = x.step;
        },
        [this_ = *this, x] {
          this_.logic->tile_applied(x.step, x.tile);
          if (this_.logic->keeps(x.tile) && this_.logic->version(x.tile) == x.step)
            this_.sim.check_tile(this_.p, x.tile, x.step);
          this_.compute_gathered();
        });
  }
  void operator()(e::copy& x) {
    // Copies are put off where they may not go fast.
    const micros pause = sim.chance(0.3) ? sim.random(0, 5000) : 0;
    sim.on_process(p, sim.clock_ + pause, [this_ = *this, x] { this_.copy_now(x); });
  }
  void copy_now(const e::copy& x) const {
    auto state = std::make_shared<blob>();
    auto version = std::make_shared<std::optional<step_number>>();
    lane(
        30,
        [this_ = *this, x, state, version] {
          if (!this_.w.has_state[x.tile.value]) return;  // let go meanwhile
          *version = this_.w.resident[x.tile.value];
          *state = blob::copy_of(std::as_bytes(std::span(&this_.w.tiles[x.tile.value], 1)));
        },
        [to = logic, x, state, version] {
          if (*version) to->tile_copied(x.tile, **version, 1, *state);
        });
  }
  void operator()(e::read_parameters& x) {
    auto values = std::make_shared<blob>();
    lane(
        10, [&tile = w.tiles[x.tile.value], values] { *values = to_blob(tile.parameters); },
        [to = logic, x, values] { to->parameters_read(x.tile, x.version, *values); });
  }
  void operator()(e::install& x) {
    // Now and then a copy arrives damaged.
    if (sim.chance(0.02))
      return lane(
          30, [this_ = *this, x] { this_.w.has_state[x.tile.value] = false; },
          [this_ = *this, x] { this_.logic->tile_damaged(x.tile, x.version); });
    lane(
        30,
        [this_ = *this, x] {
          std::memcpy(&this_.w.tiles[x.tile.value], x.state.data(), sizeof(toy_tile));
          this_.w.resident[x.tile.value] = x.version;
          this_.w.has_state[x.tile.value] = true;
        },
        [this_ = *this, x] {
          this_.sim.check_tile(this_.p, x.tile, x.version);
          this_.logic->tile_installed(x.tile, x.version);
          this_.compute_gathered();
        });
  }
  void operator()(e::let_go& x) {
    lane(
        1,
        [this_ = *this, x] {
          this_.w.tiles[x.tile.value].moments = 0xdead;
          this_.w.has_state[x.tile.value] = false;
          if (level_of(this_.sim.job_) != sharding_level::parameters) return;
          this_.w.tiles[x.tile.value].parameters = 0xdead;
          this_.w.resident[x.tile.value].reset();
        },
        [] {});
  }
  void operator()(e::install_parameters& x) {
    lane(
        10,
        [this_ = *this, x] {
          this_.w.tiles[x.tile.value] = {to_value(x.values), 0};
          this_.w.resident[x.tile.value] = x.version;
        },
        [this_ = *this] { this_.compute_gathered(); });
  }
  void operator()(e::restore& x) {
    lane(
        500,
        [this_ = *this, x] {
          for (std::uint32_t t = 0; t < this_.sim.tiles_; ++t) restore_tile(this_, x, t);
        },
        [to = logic, x] { to->restored(x.at); });
  }
  static void restore_tile(const worker_effects& to, const e::restore& x, std::uint32_t t) {
    const bool is_held = std::find(x.held.begin(), x.held.end(), tile_id(t)) != x.held.end();
    const bool gathers = level_of(to.sim.job_) == sharding_level::parameters;
    to.w.tiles[t] = is_held || !gathers ? to.sim.oracle_->tile(x.source.step, t) : toy_tile{0xdead, 0xdead};
    if (!is_held) to.w.tiles[t].moments = 0xdead;
    to.w.has_state[t] = is_held;
    to.w.resident[t] = is_held || !gathers ? std::optional(x.source.step) : std::nullopt;
  }
  void operator()(e::snapshot& x) {
    chunk_report c;
    c.who = w.id;
    c.timeline = logic->timeline();
    c.at = logic->promised();
    c.step = x.step;
    c.tile = x.tile;
    lane(
        10, [this_ = *this, x] { this_.sim.check_tile(this_.p, x.tile, x.step); },
        [this_ = *this, c] { this_.sim.tell_coordinator(this_.p, c); });
  }
  void operator()(e::finish& x) {
    lane(
        10, [] {},
        [this_ = *this, x, timeline = logic->timeline()] {
          final_report r{this_.w.id, timeline, x.step, {}};
          for (std::uint32_t t = 0; t < this_.sim.tiles_; ++t) {
            const auto& tile = this_.w.tiles[t];
            r.tile_hashes.push_back(this_.logic->holds(tile_id(t)) ? mix(tile.parameters, tile.moments) : 0);
          }
          this_.sim.tell_coordinator(this_.p, r);
        });
  }
  void operator()(e::stop& x) { sim.kill_process(p, x.why); }
};

bool world::is_wanted(std::size_t p, step_number step, const block& b, std::uint64_t attempt) const {
  const auto& w = *processes_[p];
  const auto a = w.attempts.find(b);
  return w.computing_step == step && a != w.attempts.end() && a->second == attempt;
}

void world::run_worker_effect(std::size_t p, worker::effects_item& item) {
  std::visit(worker_effects{*this, p}, item);
}

// ---- the coordinator's shell
// -----------------------------------------------------------------------------------

void world::start_coordinator() {
  ++term_;
  trace("coordinator starts, term " + std::to_string(term_));
  coordinator::supervisor_options o;
  o.tiles = tiles_;
  o.replicas = replicas_;
  o.lease = std::chrono::milliseconds(60);
  o.gather = std::chrono::milliseconds(10);
  o.learn_timeout = std::chrono::hours(1);
  o.final_checkpoint = std::chrono::milliseconds(50);
  o.adopt_timeout = std::chrono::hours(1);  // a watchdog would hide deadlocks
  coordinator_ = std::make_unique<coordinator::supervisor>(term_number(term_), job_, o, durable_, checkpoint_,
                                                           coordinator_out_, now(), options_.broken);
  for (std::size_t p = 0; p < processes_.size(); ++p)
    if (processes_[p]->alive) at(clock_ + random(100, 5000), [this, p] { connect_control(p); });
}

void world::crash_coordinator() {
  if (!coordinator_) return;
  trace("coordinator crashes");
  coordinator_.reset();
  coordinator_out_.clear();
  chunks_.clear();
  for (std::size_t p = 0; p < processes_.size(); ++p) break_control(p, false);
  at(clock_ + random(1000, 80000), [this] { start_coordinator(); });
}

void world::with_coordinator(const std::function<void(coordinator::supervisor&)>& event) {
  if (!coordinator_) return;
  event(*coordinator_);
  run_coordinator_effects();
}

void world::run_coordinator_effects() {
  namespace ce = coordinator::effect;
  while (coordinator_ && !coordinator_out_.empty()) {
    const auto batch = std::move(coordinator_out_);
    coordinator_out_.clear();
    for (const auto& item : batch) {
      std::visit(overloaded{
                     [&](const ce::persist& x) { durable_ = *x.state; },
                     [&](const ce::record& x) { durable_.newest = x.newest; },
                     [&](const ce::send& x) {
                       if (const auto* r = std::get_if<recover_order>(x.order.get())) check_recovery(*r);
                       tell_worker(x.to, *x.order);
                     },
                     [&](const ce::note& x) {
                       trace("  " + std::string(to_string(x.what.kind)) + " " + x.what.subject + ": " +
                             x.what.reason);
                       if (x.what.reason.empty()) fail("a decision without a reason");
                     },
                     [&](const ce::collect& x) { collect_chunk(x.chunk); },
                     [&](const ce::kill& x) { kill_process(index_of(x.who), x.why); },
                     [&](const ce::end& x) {
                       if (x.how != coordinator::event_kind::job_finished) fail("the job ended: " + x.why);
                       for (std::uint32_t t = 0; t < tiles_; ++t) {
                         const auto& want = oracle_->tile(step_number(job_.steps), t);
                         if (x.tile_hashes[t] != mix(want.parameters, want.moments))
                           fail("the final hash is another");
                       }
                     },
                 },
                 item);
      if (clock_ < quiet_after_ && crash_between_effects_ > 0 && chance(crash_between_effects_))
        return crash_coordinator();
    }
  }
}

void world::collect_chunk(const chunk_report& c) {
  auto& tiles = chunks_[{c.timeline, c.step}];
  tiles.insert(c.tile);
  if (tiles.size() < tiles_) return;
  chunks_.erase({c.timeline, c.step});
  if (c.step <= checkpoint_.source.step && checkpoint_.source.timeline == c.timeline) return;
  const auto v = verdicts_.find({c.timeline, c.step});
  if (v == verdicts_.end()) fail("a snapshot of a step that was never decided");
  checkpoint_ = {{c.step, c.timeline}, v->second};
  trace("  checkpoint of step " + to_string(c.step));
  if (coordinator_) coordinator_->checkpoint_committed(checkpoint_, now());
}

void world::heartbeat(std::size_t p) {
  on_process(p, clock_ + 5000, [this, p] {
    auto& w = *processes_[p];
    if (w.connected) {
      at(clock_ + random(30, 600), [this, p] {
        if (!coordinator_ || !processes_[p]->connected) return;
        processes_[p]->heard = clock_;
        // A fenced process that still talks is told so again.
        if (coordinator_->is_fenced(processes_[p]->id))
          tell_worker(processes_[p]->id, fenced_order{coordinator_->state().at});
      });
    }
    heartbeat(p);
  });
}

void world::tick() {
  at(clock_ + 5000, [this] {
    with_coordinator([&](auto& c) { c.tick(now()); });
    for (std::size_t p = 0; p < processes_.size() && coordinator_; ++p) {
      auto& w = *processes_[p];
      if (coordinator_->is_fenced(w.id) || clock_ - w.heard < 60000) continue;
      with_coordinator([&](auto& c) { c.lost(w.id, "its lease expired", now()); });
    }
    tick();
  });
}

}  // namespace perdura::sim
