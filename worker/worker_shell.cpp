#include "worker/worker_shell.hpp"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "actors/base/check.hpp"
#include "actors/base/log.hpp"
#include "actors/base/overloaded.hpp"
#include "actors/runtime/config_file.hpp"
#include "storage/checkpoint_reader.hpp"

namespace perdura::worker {

namespace {

// A block on the lane: the parts of its sum, and how far it is, for those who watch.
class block_on_lane final : public block_collector {
 public:
  block_on_lane(std::size_t tiles_count, const std::atomic<bool>& stop, progress& seen)
      : block_collector(tiles_count), stop_(stop), seen_(seen) {}
  bool stop() override { return stop_.load(std::memory_order_relaxed); }
  void slot_done(std::chrono::nanoseconds spent) override {
    seen_.slots_done.fetch_add(1, std::memory_order_relaxed);
    seen_.slot_nanoseconds.fetch_add(spent.count(), std::memory_order_relaxed);
  }

 private:
  const std::atomic<bool>& stop_;
  progress& seen_;
};

result<void> load(trainer& into, const std::string& store, const storage::checkpoint_key& key) {
  if (key.step.value == 0) {
    into.initialise();
    return {};
  }
  auto reader = storage::checkpoint_reader::open(store, key);
  if (!reader) return reader.failure();
  for (std::uint32_t t = 0; t < into.tiles().size(); ++t) {
    auto state = reader->load_tile(tile_id(t));
    if (!state) return state.failure();
    into.install_tile(tile_id(t), *state);
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
  around_.tell(job_ready{options_.self, job_->job, numeric_class_, trainer_->tiles()});
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
  const auto tiles = static_cast<std::uint32_t>(trainer_->tiles().size());
  logic_ = std::make_unique<step_protocol>(options_.self, config_, tiles, out_);
  snapshots_ =
      std::make_unique<snapshots>(job_->store, options_.self, [this](std::vector<chunk_report> chunks) {
        around_.post([chunks = std::move(chunks), number = job_number_](worker_shell& w) {
          if (w.job_number_ != number) return;
          w.chunks_ = chunks;
          for (const auto& c : chunks) w.around_.tell(c);
        });
      });
  for (const auto& [peer, session] : linked_) logic_->link_up(peer);
  log::info("job " + id + " is loaded: " + std::to_string(trainer_->parameter_count()) + " parameters in " +
            std::to_string(tiles) + " tiles");
  around_.tell(job_ready{options_.self, id, numeric_class_, trainer_->tiles()});
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
  lane_.run([gone = std::move(trainer_)] {});
  trainer_.reset();
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
  lane_.compute(
      e.step, e.slots, [this, e, number = job_number_, made = trainer_](const std::atomic<bool>& stop) {
        block_on_lane block(made->tiles().size(), stop, progress_);
        const auto sum = made->compute_block(e.step, e.slots, block);
        if (!sum) return;
        auto parts = std::make_shared<computed_block>(computed_block{sum->loss, std::move(block.tiles)});
        around_.post([e, number, parts](worker_shell& w) {
          if (w.job_number_ != number) return;
          w.fault_.reached(e.step, fault_phase::compute);
          w.logic_->block_computed(e.step, e.slots, std::move(*parts));
          w.after_event();
        });
      });
}

void worker_shell::run(effect::keep_only& e) { lane_.keep_only(e.step, e.blocks); }

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
      [e](trainer& t) {
        t.apply(e.tile, e.gradient, e.outcome);
        return true;
      },
      [e](worker_shell& w, bool) {
        w.fault_.reached(e.step, fault_phase::apply);
        w.logic_->tile_applied(e.step, e.tile);
        w.trace_applied();
      });
}

void worker_shell::run(effect::copy& e) {
  on_lane([e](trainer& t) { return t.copy_tile(e.tile); },
          [e](worker_shell& w, blob state) { w.logic_->tile_copied(e.tile, e.version, std::move(state)); });
}

void worker_shell::run(effect::read_parameters& e) {
  on_lane(
      [e](trainer& t) { return t.copy_parameters(e.tile); },
      [e](worker_shell& w, blob values) { w.logic_->parameters_read(e.tile, e.version, std::move(values)); });
}

void worker_shell::run(effect::install& e) {
  on_lane(
      [e](trainer& t) {
        t.install_tile(e.tile, e.state.bytes());
        return true;
      },
      [e](worker_shell& w, bool) { w.logic_->tile_installed(e.tile, e.version); });
}

void worker_shell::run(effect::install_parameters& e) {
  lane_.run([e, made = trainer_] { made->install_parameters(e.tile, e.values.bytes()); });
}

void worker_shell::run(effect::restore& e) {
  on_lane(
      [e, job = *job_](trainer& t) {
        return load(t, job.store, {job.job, e.source.timeline, e.source.step});
      },
      [e](worker_shell& w, result<void> done) {
        if (done) return w.logic_->restored(e.source.step);
        log::error(done.failure().message);
        w.around_.tell(worker_failure{w.options_.self, done.failure().message});
      });
}

void worker_shell::run(effect::snapshot& e) {
  const storage::checkpoint_key key{job_->job, logic_->timeline(), e.step};
  on_lane([e](trainer& t) { return t.copy_tile(e.tile); },
          [e, key, at = logic_->promised()](worker_shell& w, blob state) {
            w.snapshots_->add(key, at, e.tile, e.of, std::move(state), e.step.value == w.config_.steps);
          });
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
