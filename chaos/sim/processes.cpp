// What worker/worker_shell.cpp does in the process.
#include <algorithm>
#include <cmath>
#include <utility>

#include "chaos/sim/world.hpp"

namespace perdura::sim {

namespace e = perdura::worker::effect;

std::size_t world::start_process(std::uint32_t seat) {
  const auto p = processes_.size();
  auto& s = seats_[seat];
  auto w = std::make_unique<process>();
  w->index = p;
  w->seat = seat;
  w->rng = draws(scenario_.seed, purpose::process, seat, s.lives++);
  s.current = p;
  // Incarnations are random, so a newcomer sorts anywhere among the others.
  w->id = {w->rng.next() | 1U, p + 1};
  w->tiles.resize(tiles_);
  w->held_before.resize(tiles_);
  w->resident.resize(tiles_);
  w->has_state.resize(tiles_);
  w->slowness = std::exp2(static_cast<double>(w->rng.between(-2, 2)));
  w->clock_rate = 0.8 + 0.05 * static_cast<double>(w->rng.between(0, 9));
  w->logic = std::make_unique<worker::step_protocol>(w->id, job_, tiles_, w->out, broken_);
  processes_.push_back(std::move(w));
  trace("start w" + std::to_string(p) + " on seat " + std::to_string(seat) + " " +
        short_name(processes_[p]->id));
  for (std::uint32_t other = 0; other < seats_max; ++other)
    if (other != seat && live_on(other))
      at(clock_ + s.rng.between(100, 3'000), [this, seat, other] { connect_link(seat, other); });
  at(clock_ + s.rng.between(100, 3'000), [this, p] { connect_control(p); });
  heartbeat(p);
  return p;
}

// A process that ends is seen by its agent and by all it has links to; a machine that vanishes by nobody.
void world::kill_process(std::size_t p, const std::string& why, bool vanishes) {
  auto& w = *processes_[p];
  if (!w.alive) return;
  trace((vanishes ? "vanish w" : "kill w") + std::to_string(p) + ": " + why);
  w.alive = false;
  w.deferred.clear();
  auto& s = seats_[w.seat];
  if (w.control && (vanishes || s.rng.chance(0.3))) w.control->lost = true;  // what it said last
  for (std::uint32_t other = 0; other < seats_max; ++other) {
    auto& l = link_of(w.seat, other);
    if (other == w.seat || !l.up) continue;
    const auto notice = vanishes ? s.rng.between(8'000, 40'000) : s.rng.between(10, 2'000);
    sever(l, notice, notice, false);
  }
  if (!vanishes) {
    const auto reported = std::max(clock_ + s.rng.between(500, 4'000), s.up_silent_until);
    ask_coordinator(reported, [this, who = w.id](auto& c) { lose(c, who, "its process ended"); });
  }
  at(clock_ + s.rng.between(1'000, 20'000), [this, seat = w.seat] {
    if (!live_on(seat)) start_process(seat);
  });
}

void world::heartbeat(std::size_t p) {
  on_process(p, clock_ + static_cast<micros>(5'000 * processes_[p]->clock_rate), [this, p] {
    auto& w = *processes_[p];
    if (w.control && w.control->open) {
      auto& s = seats_[w.seat];
      const auto when = std::max(clock_ + s.rng.between(30, 600), s.up_silent_until);
      at(when, [this, p, on = w.control] {
        if (on->lost || !on->with->alive) return;
        on->with->arrived_from[processes_[p]->id] = clock_;
        task hears = [this, c = on->with, who = processes_[p]->id] {
          if (c->known.contains(who)) c->leases->renew(who);
          // A fenced process that still talks is told so again.
          if (c->logic->is_fenced(who)) tell_worker(*c, who, fenced_order{c->logic->state().at});
        };
        deliver(on->with, hears);
      });
    }
    heartbeat(p);
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

struct world::worker_effects {
  world& sim;
  const std::size_t p;
  process& w = *sim.processes_[p];
  worker::step_protocol* const logic = w.logic.get();

  // Costs in microseconds of a worker of normal speed.
  template <class Work, class Done>
  void lane(micros cost, Work work, Done done) const {
    w.lane_free =
        std::max(w.lane_free, sim.clock_) + 1 + static_cast<micros>(static_cast<double>(cost) * w.slowness);
    sim.on_process(p, w.lane_free, [work = std::move(work), done = std::move(done)]() mutable {
      work();
      done();
    });
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
    sim.check_owner(p, x.step, x.tile);
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
    const micros pause = w.rng.chance(0.3) ? w.rng.between(0, 5000) : 0;
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
    if (w.rng.chance(0.02))
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
    if (!sim.committed_.contains({x.source.timeline, x.source.step}) && x.source.step.value != 0)
      sim.fail("state was restored from a checkpoint that was never committed");
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
    to.w.tiles[t] = is_held || !gathers ? to.sim.oracle_.tile(x.source.step, t) : toy_tile{0xdead, 0xdead};
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
  void operator()(e::stop& x) {
    sim.check_end(p, x.why);
    sim.kill_process(p, x.why);
  }
};

bool world::is_wanted(std::size_t p, step_number step, const block& b, std::uint64_t attempt) const {
  const auto& w = *processes_[p];
  const auto a = w.attempts.find(b);
  return w.computing_step == step && a != w.attempts.end() && a->second == attempt;
}

void world::run_worker_effect(std::size_t p, worker::effects_item& item) {
  std::visit(worker_effects{*this, p}, item);
}

}  // namespace perdura::sim
