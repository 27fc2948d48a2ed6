#include "worker/worker_shell.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "actors/base/check.hpp"
#include "actors/base/log.hpp"
#include "actors/base/overloaded.hpp"
#include "actors/runtime/config_file.hpp"
#include "kernels/hash.hpp"
#include "storage/checkpoint_reader.hpp"

namespace perdura::worker {

namespace {

constexpr std::size_t state_arrays_of_a_tile = 4;

// The state of the tiles held, and all parameters that are kept.
result<void> load(trainer& into, resident_parameters& resident, const job_config& job,
                  const std::string& store, const storage::checkpoint_key& key,
                  const std::vector<tile_id>& held, bool is_from_seed) {
  const auto tiles = static_cast<std::uint32_t>(into.tiles().size());
  const bool keeps_all = level_of(job) != sharding_level::parameters;
  std::vector<bool> is_held(tiles, false);
  for (const auto t : held) is_held[t.value] = true;
  for (std::uint32_t t = 0; t < tiles; ++t) {
    if (is_held[t])
      into.hold(tile_id(t));
    else if (into.is_held(tile_id(t)))
      into.let_go(tile_id(t));
    resident.drop(tile_id(t));
    if (is_held[t] || keeps_all) resident.set(tile_id(t), key.step);
  }
  if (is_from_seed) {
    into.initialise();
    return {};
  }
  auto reader = storage::checkpoint_reader::open(store, key);
  if (!reader) return reader.failure();
  for (std::uint32_t t = 0; t < tiles; ++t) {
    if (!is_held[t] && !keeps_all) continue;
    auto state = reader->load_tile(tile_id(t));
    if (!state) return state.failure();
    into.install_tile(tile_id(t), *state);
    if (!is_held[t]) into.let_go(tile_id(t));
  }
  return {};
}

}  // namespace

result<std::unique_ptr<worker_shell>> worker_shell::make(shell_options options, surroundings around) {
  std::unique_ptr<worker_shell> made(new worker_shell(std::move(options), std::move(around)));
  auto* shell = made.get();
  frame_events events;
  events.up = [shell](incarnation peer, std::uint64_t session) {
    shell->around_.post([peer, session](worker_shell& w) {
      w.linked_[peer] = session;
      if (w.logic_) w.logic_->link_up(peer);
      w.after_event();
    });
  };
  events.down = [shell](incarnation peer, std::string why) {
    shell->around_.post([peer, why = std::move(why)](worker_shell& w) {
      w.linked_.erase(peer);
      if (w.logic_) w.logic_->link_down(peer, why);
      w.after_event();
    });
  };
  events.received = [shell](frame f) {
    shell->around_.post([f = std::move(f)](worker_shell& w) mutable {
      if (w.logic_) w.logic_->received(std::move(f));
      w.after_event();
    });
  };
  auto links = frame_links::make(shell->around_.make_links, std::move(events));
  if (!links) return links.failure();
  made->links_ = std::move(*links);
  return made;
}

worker_shell::worker_shell(shell_options options, surroundings around)
    : options_(std::move(options)), around_(std::move(around)), fault_(options_.injected) {}

worker_shell::~worker_shell() {
  if (links_) links_->close();
}

worker_hello worker_shell::greeting() const {
  auto hello = logic_ ? logic_->greeting() : worker_hello{};
  hello.protocol = protocol_version;
  hello.who = options_.self;
  hello.node = options_.node;
  hello.name = options_.name;
  hello.link = links_->local();
  hello.numeric_class = numeric_class_;
  hello.pid = static_cast<std::uint32_t>(::getpid());
  return hello;
}

void worker_shell::welcomed() {
  if (!logic_) return;
  around_.tell(job_ready{options_.self, job_->job, numeric_class_, trainer_->tiles(), trainer_->tensors()});
  for (const auto& c : chunks_) around_.tell(c);  // they may be lost with the last connection
  logic_->coordinator_connected();
  after_event();
}

void worker_shell::order(const order_envelope& o) {
  if (o.to != options_.self || o.term < term_) return;
  term_ = o.term;
  std::visit(overloaded{[&](const job_order& x) { on_job(x); },
                        [&](const peers_order& x) { links_->set_peers(x.peers); },
                        [&](const dismiss_order& x) {
                          if (job_ && job_->job == x.job) dismiss();
                        },
                        [&](const fenced_order& x) {
                          if (!logic_) return around_.stop("fenced in era " + to_string(x.at));
                          logic_->order(o);
                        },
                        [&](const auto&) {
                          if (logic_) logic_->order(o);
                        }},
             o.order);
  after_event();
}

// ---- the job

void worker_shell::on_job(const job_order& o) {
  if (job_ && job_->job == o.job) return;  // at it, or loading it
  dismiss();
  job_ = o;
  const auto number = job_number_;
  log::info("loading job " + o.job);
  lane_.run([this, o, number] {
    auto config = runtime::parse_job(o.text, o.job);
    auto made = config ? make_trainer(*config) : result<std::unique_ptr<trainer>>(config.failure());
    if (!made) {
      return around_.post([why = made.failure().message](worker_shell& w) {
        log::error(why);
        w.around_.tell(worker_failure{w.options_.self, why});
      });
    }
    const auto numeric_class = (*made)->numeric_class();
    auto shared = std::make_shared<std::unique_ptr<trainer>>(std::move(*made));
    around_.post([=, config = *config](worker_shell& w) {
      if (w.job_number_ == number) w.job_loaded(o.job, config, std::move(*shared), numeric_class);
    });
  });
}

void worker_shell::job_loaded(const std::string& id, job_config config, std::unique_ptr<trainer> made,
                              std::uint64_t numeric_class) {
  config_ = std::move(config);
  trainer_ = std::move(made);
  numeric_class_ = numeric_class;
  traced_ = {};
  resident_ = std::make_shared<resident_parameters>(trainer_->tiles().size());
  spans_ = spans::open(options_.spans_folder, options_.name);
  attempts_.clear();
  const auto tiles = static_cast<std::uint32_t>(trainer_->tiles().size());
  logic_ = std::make_unique<step_protocol>(options_.self, config_, tiles, out_);
  snapshots_ = std::make_unique<snapshots>(
      job_->store, options_.self, config_.checkpoint, [this](std::vector<chunk_report> chunks) {
        around_.post([chunks = std::move(chunks), number = job_number_](worker_shell& w) {
          if (w.job_number_ != number) return;
          w.chunks_ = chunks;
          for (const auto& c : chunks) w.around_.tell(c);
        });
      });
  for (const auto& [peer, session] : linked_) logic_->link_up(peer);
  log::info("job " + id + " is loaded: " + std::to_string(trainer_->parameter_count()) + " parameters in " +
            std::to_string(tiles) + " tiles");
  around_.tell(job_ready{options_.self, id, numeric_class_, trainer_->tiles(), trainer_->tensors()});
  after_event();
}

void worker_shell::dismiss() {
  ++job_number_;
  lane_.keep_only(step_number(0), {});
  job_.reset();
  logic_.reset();
  out_.clear();
  snapshots_.reset();
  chunks_.clear();
  numeric_class_ = 0;
  // The lane may still be at work with it.
  lane_.run([gone = std::move(trainer_), also = std::move(resident_)] {});
  trainer_.reset();
  resident_.reset();
}

// ---- effects

template <class Work, class Event>
void worker_shell::on_lane(Work work, Event event) {
  lane_.run([this, number = job_number_, made = trainer_, work = std::move(work),
             event = std::move(event)]() mutable {
    auto done = std::make_shared<decltype(work(*made))>(work(*made));
    around_.post([number, done, event = std::move(event)](worker_shell& w) mutable {
      if (w.job_number_ != number) return;
      event(w, std::move(*done));
      w.after_event();
    });
  });
}

void worker_shell::run_effects() {
  while (!out_.empty()) {
    auto batch = std::move(out_);
    out_.clear();
    for (auto& item : batch) std::visit([this](auto& e) { run(e); }, item);
  }
}

void worker_shell::after_event() {
  run_effects();
  if (!logic_) {
    progress_.phase = worker_phase::idle;
    return;
  }
  progress_.step = logic_->step().value;
  progress_.phase = logic_->where();
}

void worker_shell::run(effect::send& e) {
  if (std::holds_alternative<partial_frame>(e.what.body)) fault_.reached(e.what.step, fault_phase::exchange);
  if (std::holds_alternative<reduced_frame>(e.what.body)) fault_.reached(e.what.step, fault_phase::gather);
  if (const auto link = linked_.find(e.to); link != linked_.end()) links_->send(e.to, link->second, e.what);
  if (std::holds_alternative<vote_frame>(e.what.body)) fault_.reached(e.what.step, fault_phase::vote);
}

void worker_shell::run(effect::report& e) {
  if (const auto* v = std::get_if<verdict_report>(&e.what))
    fault_.reached(v->observed.step, fault_phase::verdict);
  around_.tell(std::move(e.what));
}

void worker_shell::run(effect::compute& e) {
  if (computing_step_ != e.step) attempts_.clear();
  computing_step_ = e.step;
  const auto attempt = attempts_[e.slots] = ++attempt_;
  lane_.compute(e.step, e.slots, [this, e, attempt, made = on_lane_now()](const std::atomic<bool>& stopped) {
    compute(e, attempt, made, stopped);
  });
}

worker_shell::lane_things worker_shell::on_lane_now() const {
  return {trainer_, resident_, spans_, level_of(config_)};
}

// On the lane.
void worker_shell::compute(const effect::compute& e, std::uint64_t attempt, const lane_things& made,
                           const std::atomic<bool>& stopped) {
  const auto& numbers = made.numbers;
  const bool streams = made.level >= sharding_level::gradients;
  auto parts = std::make_shared<computed_block>();
  if (!streams) parts->tiles.resize(numbers->tiles().size());
  const auto post = [&](auto event) {
    around_.post([e, attempt, event = std::move(event)](worker_shell& w) {
      if (!w.is_wanted(e.step, e.slots, attempt)) return;
      event(w);
      w.after_event();
    });
  };
  pass::events tell;
  tell.wanted = [&](tile_id tile) {
    post([e, tile](worker_shell& w) { w.logic_->parameters_wanted(e.step, tile); });
  };
  tell.done = [&](tile_id tile, blob gradient, double loss) {
    if (!streams) {
      parts->tiles[tile.value] = std::move(gradient);
      return;
    }
    post([e, tile, part = partial{e.slots, loss, std::move(gradient)}](worker_shell& w) {
      w.logic_->tile_computed(e.step, e.slots, tile, part);
    });
  };
  tell.slot_done = [this](std::chrono::nanoseconds spent) {
    ++progress_.slots_done;
    progress_.slot_nanoseconds += spent.count();
  };
  pass around(lane_, *numbers, *made.resident, e.step, made.level == sharding_level::parameters, stopped,
              std::move(tell), made.trace);
  const auto sum = numbers->compute_block(e.step, e.slots, around);
  if (!sum) return;
  parts->loss = sum->loss;
  post([e, parts](worker_shell& w) {
    w.attempts_.erase(e.slots);
    w.fault_.reached(e.step, fault_phase::compute);
    w.logic_->block_computed(e.step, e.slots, std::move(*parts));
  });
}

bool worker_shell::is_wanted(step_number step, const block& slots, std::uint64_t attempt) const {
  const auto a = attempts_.find(slots);
  return logic_ && computing_step_ == step && a != attempts_.end() && a->second == attempt;
}

void worker_shell::run(effect::keep_only& e) {
  if (computing_step_ != e.step) attempts_.clear();
  std::erase_if(attempts_, [&](const auto& a) {
    return std::find(e.blocks.begin(), e.blocks.end(), a.first) == e.blocks.end();
  });
  lane_.keep_only(e.step, e.blocks);
}

void worker_shell::run(effect::reduce& e) {
  on_lane(
      [e](trainer& t) {
        std::vector<tile_partial> partials;
        for (const auto& p : e.partials) partials.push_back({p.slots, p.loss, p.gradient});
        auto r = t.reduce(e.tile, partials);
        return reduced_frame{e.tile, r.norm2, r.finite, r.loss, std::move(r.gradient)};
      },
      [e](worker_shell& w, reduced_frame r) { w.logic_->tile_reduced(e.step, e.tile, std::move(r)); });
}

void worker_shell::run(effect::apply& e) {
  on_lane(
      [e, resident = resident_, trace = spans_](trainer& t) {
        if (!t.is_held(e.tile)) return false;  // its copy came damaged
        const auto begin = spans::now();
        t.apply(e.tile, e.gradient, e.outcome);
        resident->set(e.tile, e.step);
        if (trace)
          trace->add(spans::track::lane, "apply tile " + to_string(e.tile), e.step.value, begin,
                     spans::now());
        return true;
      },
      [e](worker_shell& w, bool) {
        w.fault_.reached(e.step, fault_phase::apply);
        w.logic_->tile_applied(e.step, e.tile);
        w.trace_applied();
      });
}

// Copies are for newcomers, who can wait: they are spread out where the job says how fast they may go.
std::chrono::nanoseconds worker_shell::pause_before_copy(tile_id tile) {
  const auto now = std::chrono::steady_clock::now();
  const auto pause = std::max(copies_free_at_ - now, std::chrono::steady_clock::duration{0});
  const double rate = 1e6 * config_.elastic.transfer_mb_per_s;
  if (rate > 0) {
    const double bytes =
        static_cast<double>(trainer_->tiles()[tile.value].size * sizeof(float) * state_arrays_of_a_tile);
    copies_free_at_ = now + pause + std::chrono::nanoseconds(static_cast<std::int64_t>(1e9 * bytes / rate));
  }
  return pause;
}

void worker_shell::run(effect::copy& e) {
  const auto copy = [e, number = job_number_](worker_shell& w) {
    if (w.job_number_ != number) return;
    w.on_lane(
        [e, resident = w.resident_](trainer& t) {
          struct {
            std::optional<step_number> version;
            std::uint64_t hash{};
            blob state;
          } copied;
          if (!t.is_held(e.tile)) return copied;  // let go meanwhile
          copied.version = resident->version(e.tile);
          copied.state = t.copy_tile(e.tile);
          copied.hash = kernels::hash64(copied.state.bytes());
          return copied;
        },
        [e](worker_shell& s, auto copied) {
          if (copied.version)
            s.logic_->tile_copied(e.tile, *copied.version, copied.hash, std::move(copied.state));
        });
  };
  const auto pause = pause_before_copy(e.tile);
  if (pause.count() <= 0) return copy(*this);
  around_.post_later(pause, copy);
}

void worker_shell::run(effect::read_parameters& e) {
  on_lane(
      [e](trainer& t) { return t.copy_parameters(e.tile); },
      [e](worker_shell& w, blob values) { w.logic_->parameters_read(e.tile, e.version, std::move(values)); });
}

void worker_shell::run(effect::install& e) {
  on_lane(
      [e, resident = resident_](trainer& t) {
        if (kernels::hash64(e.state.bytes()) != e.hash) return false;
        t.install_tile(e.tile, e.state.bytes());
        resident->set(e.tile, e.version);
        return true;
      },
      [e](worker_shell& w, bool is_whole) {
        if (is_whole) return w.logic_->tile_installed(e.tile, e.version);
        log::warn("the copy of tile " + to_string(e.tile) + " came damaged; it is asked for again");
        w.logic_->tile_damaged(e.tile, e.version);
      });
}

void worker_shell::run(effect::let_go& e) {
  lane_.run([e, made = on_lane_now()] {
    if (made.numbers->is_held(e.tile)) made.numbers->let_go(e.tile);
    if (made.level != sharding_level::parameters) return;
    made.numbers->drop_parameters(e.tile);
    made.resident->drop(e.tile);
  });
}

void worker_shell::run(effect::install_parameters& e) {
  lane_.run([e, made = on_lane_now()] {
    if (made.level == sharding_level::parameters && !made.resident->is_wanted(e.tile)) return;
    made.numbers->install_parameters(e.tile, e.values.bytes());
    made.resident->set(e.tile, e.version);
    made.resident->arrived(e.tile);
  });
}

void worker_shell::run(effect::restore& e) {
  on_lane(
      [e, job = *job_, config = config_, resident = resident_](trainer& t) {
        return load(t, *resident, config, job.store, {job.job, e.source.timeline, e.source.step}, e.held,
                    e.is_from_seed);
      },
      [e](worker_shell& w, result<void> done) {
        if (done) return w.logic_->restored(e.at);
        log::error(done.failure().message);
        w.around_.tell(worker_failure{w.options_.self, done.failure().message});
      });
}

void worker_shell::run(effect::snapshot& e) {
  const storage::checkpoint_key key{job_->job, logic_->timeline(), e.step};
  const auto keep = [this, number = job_number_, e, key, at = logic_->promised()](blob state) {
    around_.post([number, e, key, at, state](worker_shell& w) {
      if (w.job_number_ == number)
        w.snapshots_->add(key, at, e.tile, e.of, state, e.step.value == w.config_.steps);
    });
  };
  lane_.run([made = trainer_, e, keep] { made->copy_tile_later(e.tile, keep); });
}

void worker_shell::run(effect::finish& e) {
  std::vector<bool> held;
  for (std::uint32_t t = 0; t < trainer_->tiles().size(); ++t) held.push_back(logic_->holds(tile_id(t)));
  on_lane(
      [held](trainer& t) {
        std::vector<std::uint64_t> hashes(held.size(), 0);
        for (std::uint32_t i = 0; i < held.size(); ++i)
          if (held[i]) hashes[i] = t.hash_tile(tile_id(i));
        return hashes;
      },
      [e, timeline = logic_->timeline()](worker_shell& w, std::vector<std::uint64_t> hashes) {
        w.around_.tell(final_report{w.options_.self, timeline, e.step, std::move(hashes)});
      });
}

void worker_shell::run(effect::stop& e) { around_.stop(e.why); }

// One line for each step that is applied to all tiles held here: what the oracle of the chaos tests reads.
void worker_shell::trace_applied() {
  if (options_.trace_folder.empty() || !logic_->newest()) return;
  const auto& v = *logic_->newest();
  const std::pair at{v.timeline, v.step};
  if (at <= traced_) return;
  for (std::uint32_t t = 0; t < trainer_->tiles().size(); ++t)
    if (logic_->holds(tile_id(t)) && logic_->version(tile_id(t)) != v.step) return;
  traced_ = at;
  const auto& o = v.outcome;
  char line[256];
  std::snprintf(line, sizeof line, "%u %llu norm %a clip %a rate %a time %llu loss %a\n", v.timeline.value,
                static_cast<unsigned long long>(v.step.value), o.gradient_norm,
                static_cast<double>(o.clip_scale), static_cast<double>(o.learning_rate),
                static_cast<unsigned long long>(o.optimizer_time), o.loss);
  std::ofstream(options_.trace_folder + "/" + to_string(options_.self), std::ios::app) << line;
}

}  // namespace perdura::worker
