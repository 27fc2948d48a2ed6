#include "coordinator/coordinator_shell.hpp"

#include <algorithm>

#include "actors/base/check.hpp"
#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t steps_max = 10'000'000;
constexpr std::size_t steps_per_block = 64;
constexpr std::size_t verdicts_kept = 256;
constexpr std::size_t workers_max = 100'000;

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

double ms_between(time_point a, time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

std::string field_of(const event& e, const std::string& name) {
  for (const auto& [key, value] : e.fields)
    if (key == name) return value;
  return {};
}

std::string hash_text(const std::vector<std::uint64_t>& tile_hashes) {
  std::uint64_t all = 0xcbf29ce484222325ULL;
  for (const auto h : tile_hashes) all = (all ^ h) * 0x100000001b3ULL ^ (all >> 29);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(all));
  return text;
}

}  // namespace

coordinator_shell::coordinator_shell(shell_options options, std::unique_ptr<journal> memory,
                                     std::unique_ptr<checkpoint_keeper> keeper, surroundings around)
    : options_(std::move(options)),
      journal_(std::move(memory)),
      around_(std::move(around)),
      keeper_(std::move(keeper)) {}

result<void> coordinator_shell::begin(time_point now) {
  auto jobs = journal_->jobs();
  if (!jobs) return jobs.failure();
  for (auto& job : *jobs) {
    if (job.stage == job_stage::active) active_ = job.id;
    jobs_[job.id] = std::move(job);
  }
  note({event_kind::coordinator_started,
        "term " + to_string(options_.term),
        std::string(version_text("perdura-coordinator")) + " listens on port " +
            std::to_string(options_.config.port),
        {}});
  if (!active_) return activate_next(now), result<void>{};
  auto config = runtime::parse_job(active()->text, active()->id);
  if (!config) return config.failure();
  config_ = std::move(*config);
  if (!active()->tiles.empty()) make_supervisor(now);
  run_effects(now);
  return {};
}

void coordinator_shell::note(event e) {
  journal_->note(active_.value_or(""), e);
  around_.events_grew();
}

void coordinator_shell::send(const incarnation& to, coordinator_order order) {
  around_.send({options_.term, to, std::move(order)});
}

// ---- workers

result<welcome> coordinator_shell::greet(const worker_hello& hello, time_point now) {
  if (supervisor_ && supervisor_->is_fenced(hello.who))
    return error{errc::refused, "this life was fenced; come back as a new one"};
  if (hello.who.is_none()) return error{errc::refused, "a hello without an incarnation"};
  if (!workers_.contains(hello.who) && workers_.size() >= workers_max)
    return error{errc::exhausted, "more than " + std::to_string(workers_max) + " workers"};
  auto& w = workers_[hello.who];
  w.hello = hello;
  w.heard = now;
  w.connected = true;
  w.is_ready = false;
  tell_peers();
  if (const auto* job = active()) send(hello.who, job_order{job->id, job->text, options_.store});
  return welcome{options_.term, static_cast<std::uint32_t>(options_.config.heartbeat.count())};
}

void coordinator_shell::tell_peers() {
  peers_order peers;
  for (const auto& [who, w] : workers_) peers.peers.push_back({who, w.hello.link});
  for (const auto& [who, w] : workers_) {
    if (!w.connected) continue;
    auto others = peers;
    std::erase_if(others.peers, [&](const peer& p) { return p.who == who; });
    send(who, std::move(others));
  }
}

void coordinator_shell::report(const worker_report& r, time_point now) {
  const auto who = std::visit([](const auto& m) { return m.who; }, r.message);
  const auto w = workers_.find(who);
  if (w == workers_.end()) {
    if (supervisor_ && supervisor_->is_fenced(who)) send(who, fenced_order{supervisor_->state().at});
    return;
  }
  w->second.heard = now;
  if (const auto* ready = std::get_if<job_ready>(&r.message)) return on_job_ready(*ready, now);
  if (const auto* f = std::get_if<worker_failure>(&r.message); f && !w->second.is_ready)
    return cannot_load(w->second, *f, now);
  if (!supervisor_ || !w->second.is_ready) return;
  if (const auto* v = std::get_if<verdict_report>(&r.message)) on_verdict(*v, now);
  if (const auto* f = std::get_if<worker_failure>(&r.message)) {
    lose(who, f->why, now);
    return kill_process(who, f->why);
  }
  supervisor_->received(r.message, now);
  run_effects(now);
}

void coordinator_shell::on_job_ready(const job_ready& r, time_point now) {
  auto* job = active();
  auto& w = workers_.at(r.who);
  if (!job || r.job != job->id) return;
  if (job->tiles.empty()) {
    job->tiles = r.tiles;
    journal_->put(*job);
    make_supervisor(now);
  } else if (job->tiles != r.tiles) {
    note(
        {event_kind::worker_refused, w.hello.name, "it cuts the model into other tiles: another build?", {}});
    return;
  }
  w.is_ready = true;
  auto hello = w.hello;
  hello.numeric_class = r.numeric_class;
  if (supervisor_) supervisor_->arrived(hello, now);
  run_effects(now);
}

// One that cannot load the job stays out of it. When nobody could, the job itself is at fault.
void coordinator_shell::cannot_load(const worker_view& w, const worker_failure& f, time_point now) {
  if (!active_) return;
  note({event_kind::worker_refused, w.hello.name, f.why, {{"incarnation", to_string(f.who)}}});
  const bool somebody_can =
      std::any_of(workers_.begin(), workers_.end(), [](const auto& x) { return x.second.is_ready; });
  if (somebody_can || supervisor_) return;
  note({event_kind::job_failed, *active_, "no worker can load it: " + f.why, {}});
  out_.push_back(effect::end{event_kind::job_failed, "no worker can load it: " + f.why, {}});
  run_effects(now);
}

void coordinator_shell::beat(const heartbeat& h, time_point now) {
  const auto w = workers_.find(h.who);
  if (w == workers_.end()) {
    if (supervisor_ && supervisor_->is_fenced(h.who)) send(h.who, fenced_order{supervisor_->state().at});
    return;
  }
  w->second.heard = now;
  w->second.last = h;
  if (watchdog_) watchdog_->heard(h, now);
}

void coordinator_shell::lose(const incarnation& who, const std::string& why, time_point now) {
  if (workers_.erase(who) == 0) return;
  if (watchdog_) watchdog_->forget(who);
  if (supervisor_) supervisor_->lost(who, why, now);
  run_effects(now);
  tell_peers();
}

void coordinator_shell::worker_disconnected(const incarnation& who) {
  const auto w = workers_.find(who);
  if (w == workers_.end()) return;
  w->second.connected = false;
  around_.probe(who, w->second.hello.link);  // a hint, checked at once
}

void coordinator_shell::probed(const incarnation& who, bool answers, time_point now) {
  const auto w = workers_.find(who);
  if (w == workers_.end() || w->second.connected || answers) return;
  lose(who, "its connection broke and its port is closed", now);
}

void coordinator_shell::child_ended(const child_exit& e, time_point now) {
  lose(e.worker, "its process " + e.how, now);
}

void coordinator_shell::kill_process(const incarnation& who, const std::string& why) {
  const auto w = workers_.find(who);
  for (const auto& [node, view] : nodes_)
    if (view.connected && (w == workers_.end() || w->second.hello.node == node))
      around_.send_node({options_.term, node, kill_worker{who, why}});
}

// ---- nodes

result<welcome> coordinator_shell::greet(const node_hello& hello, time_point now) {
  if (hello.who.is_none()) return error{errc::refused, "a hello without an incarnation"};
  const bool is_new = !nodes_.contains(hello.who);
  auto& n = nodes_[hello.who];
  n.hello = hello;
  n.heard = now;
  n.connected = true;
  if (is_new) log::info("node " + hello.name + " joined with " + std::to_string(hello.devices) + " devices");
  return welcome{options_.term, static_cast<std::uint32_t>(options_.config.heartbeat.count())};
}

void coordinator_shell::beat(const node_heartbeat& h, time_point now) {
  if (const auto n = nodes_.find(h.who); n != nodes_.end()) n->second.heard = now;
}

void coordinator_shell::node_disconnected(const incarnation& who, time_point now) {
  const auto n = nodes_.find(who);
  if (n == nodes_.end()) return;
  n->second.connected = false;
  n->second.heard = now;
}

void coordinator_shell::tick(time_point now) {
  const auto lease = options_.config.lease;
  // Whoever was itself asleep must not take the others' silence for death.
  if (last_tick_ && now - *last_tick_ > lease / 2) {
    log::warn("this process did not run for " +
              std::to_string(static_cast<int>(ms_between(*last_tick_, now))) + " ms; all leases begin anew");
    for (auto& [who, w] : workers_) w.heard = now;
    for (auto& [who, n] : nodes_) n.heard = now;
  }
  last_tick_ = now;
  std::vector<incarnation> silent;
  for (const auto& [who, w] : workers_)
    if (now - w.heard > lease) silent.push_back(who);
  for (const auto& who : silent) {
    const std::string why = "its lease of " + std::to_string(lease.count()) + " ms expired";
    kill_process(who, why);
    lose(who, why, now);
  }
  std::erase_if(nodes_,
                [&](const auto& n) { return !n.second.connected && now - n.second.heard > 2 * lease; });
  if (supervisor_) supervisor_->tick(now);
  run_effects(now);
  look_for_hung(now);
}

void coordinator_shell::look_for_hung(time_point now) {
  if (!supervisor_ || !watchdog_) return;
  const auto& current = supervisor_->state().current;
  const bool all_done =
      supervisor_->state().newest && supervisor_->state().newest->step.value >= config_.steps;
  if (supervisor_->where() != stage::running || current.action != plan_action::train || all_done)
    return watchdog_->excuse(now);
  const auto hung = watchdog_->late(current, now);
  if (!hung) return;
  kill_process(hung->who, hung->why);
  lose(hung->who, hung->why, now);
}

// ---- jobs

void coordinator_shell::activate_next(time_point now) {
  if (active_) return;
  for (auto& [id, job] : jobs_) {
    if (job.stage != job_stage::waiting) continue;
    auto config = runtime::parse_job(job.text, id);
    if (!config) {
      job.stage = job_stage::failed;
      job.why = config.failure().message;
      journal_->put(job);
      continue;
    }
    job.stage = job_stage::active;
    journal_->put(job);
    active_ = id;
    config_ = std::move(*config);
    note({event_kind::job_started, id, "it is the next in the queue", {}});
    for (auto& [who, w] : workers_) {
      w.is_ready = false;
      send(who, job_order{id, job.text, options_.store});
    }
    if (!job.tiles.empty()) make_supervisor(now);
    return;
  }
}

result<restore_point> coordinator_shell::find_restore_point() {
  auto newest = keeper_->newest(active()->id);
  if (!newest) return newest.failure();
  if (!*newest) return restore_point{};
  return restore_point{{(*newest)->standing.step, (*newest)->standing.timeline}, (*newest)->standing};
}

void coordinator_shell::make_supervisor(time_point now) {
  auto state = journal_->state_of(active()->id);
  auto restore = find_restore_point();
  if (!state || !restore) {
    const auto why = !state ? state.failure().message : restore.failure().message;
    log::error(why);
    out_.push_back(effect::end{event_kind::job_failed, why, {}});
    return;
  }
  supervisor_options o;
  o.tiles = static_cast<std::uint32_t>(active()->tiles.size());
  o.lease = options_.config.lease;
  o.gather = options_.config.gather;
  o.adopt_timeout = options_.config.step_timeout;
  o.learn_timeout = options_.config.join_timeout;
  watchdog_ = std::make_unique<watchdog>(options_.config.step_timeout);
  collector_ = std::make_unique<chunk_collector>(active()->tiles.size());
  supervisor_ =
      std::make_unique<supervisor>(options_.term, config_, o, std::move(*state), *restore, out_, now);
}

void coordinator_shell::on_verdict(const verdict_report& r, time_point now) {
  const auto& v = r.observed;
  if (v.timeline != supervisor_->state().timeline) return;
  if (!verdicts_.emplace(std::pair{v.timeline, v.step}, v).second) return;
  if (verdicts_.size() > verdicts_kept) verdicts_.erase(verdicts_.begin());
  if (!supervisor_->state().newest || v.step > supervisor_->state().newest->step)
    watchdog_->step_decided(now);
  auto& h = history_of(*active_);
  const auto place = v.step.value - 1;
  if (place >= steps_max) return;
  const bool is_newest = place >= h.steps.size() || h.steps[place].step.value == 0 || v.timeline > h.timeline;
  if (v.timeline > h.timeline) {
    // Steps that were abandoned come again.
    h.timeline = v.timeline;
    if (h.steps.size() > place) h.steps.resize(place);
  }
  if (!is_newest) return;
  const bool is_next = place >= h.steps.size();
  if (is_next) h.steps.resize(place + 1);
  h.steps[place] = {v.step, v.outcome.loss, is_next && h.last_step_at ? ms_between(*h.last_step_at, now) : 0};
  if (is_next) h.last_step_at = now;
  const auto first = place / steps_per_block * steps_per_block;
  const auto end = std::min<std::size_t>(h.steps.size(), first + steps_per_block);
  journal_->put_steps(*active_, place / steps_per_block,
                      {h.steps.begin() + static_cast<std::ptrdiff_t>(first),
                       h.steps.begin() + static_cast<std::ptrdiff_t>(end)});
  if (recovering_ && recovering_->decided && v.step > recovering_->info.step) {
    recovering_->info.committed_ms = ms_between(recovering_->sign, now);
    h.recoveries.back() = recovering_->info;
    recovering_.reset();
  }
}

coordinator_shell::history& coordinator_shell::history_of(const std::string& job) {
  const auto [it, is_new] = histories_.try_emplace(job);
  if (!is_new) return it->second;
  if (auto steps = journal_->steps_of(job))
    it->second.steps = std::move(*steps);
  else
    log::error(steps.failure().message);
  return it->second;
}

// ---- effects

void coordinator_shell::run_effects(time_point now) {
  if (running_effects_) return;
  running_effects_ = true;
  while (!out_.empty()) {
    const auto batch = std::move(out_);
    out_.clear();
    for (const auto& item : batch) std::visit([&](const auto& e) { run(e, now); }, item);
  }
  running_effects_ = false;
}

void coordinator_shell::run(const effect::persist& e, time_point) { journal_->put(*active_, e.state); }

void coordinator_shell::run(const effect::record& e, time_point) { journal_->put_newest(*active_, e.newest); }

void coordinator_shell::run(const effect::send& e, time_point) { send(e.to, e.order); }

void coordinator_shell::run(const effect::note& e, time_point now) {
  watch_recovery(e.what, now);
  note(e.what);
}

// From the first sign of a failure to the next committed step: what the demo's table and the console show.
void coordinator_shell::watch_recovery(const event& e, time_point now) {
  auto& h = history_of(*active_);
  if (e.kind == event_kind::era_opened) {
    const auto cause = field_of(e, "cause");
    if (cause == "start" || cause == "resume") return;
    if (!recovering_) {
      recovering_.emplace();
      recovering_->sign = now;
      recovering_->info.time_ms = unix_ms();
      recovering_->info.kind = cause;
      recovering_->info.what = e.reason;
      h.recoveries.emplace_back();
      ++active()->recoveries;
    }
    recovering_->decided = false;
  }
  if (!recovering_) return;
  auto& info = recovering_->info;
  if (e.kind == event_kind::worker_lost && info.kind != "lost") {
    info.kind = "lost";
    info.what = e.subject + ": " + e.reason;
  }
  if (e.kind == event_kind::recovery_decided) {
    recovering_->decided = true;
    info.detected_ms = ms_between(recovering_->sign, now);
    info.recomputed_slots = std::stoull(field_of(e, "recomputed_slots"));
    info.step = step_number(std::stoull(field_of(e, "settled")));
  }
  h.recoveries.back() = info;
}

void coordinator_shell::run(const effect::collect& e, time_point now) {
  auto chunk = storage::from_report(e.chunk);
  if (!chunk) return log::warn(chunk.failure().message);
  auto all = collector_->add(e.chunk.timeline, e.chunk.step, *chunk);
  if (!all) return;
  const auto v = verdicts_.find({e.chunk.timeline, e.chunk.step});
  const auto& newest = supervisor_->state().newest;
  storage::manifest m;
  if (v != verdicts_.end())
    m.standing = v->second;
  else if (newest && newest->step == e.chunk.step && newest->timeline == e.chunk.timeline)
    m.standing = *newest;
  else
    return note(
        {event_kind::checkpoint_dropped, to_string(e.chunk.step), "its verdict is not on record", {}});
  m.job = *active_;
  m.job_text = active()->text;
  m.created_by = version_text("perdura-coordinator") + ", term " + to_string(options_.term);
  m.created_unix_ms = static_cast<std::uint64_t>(unix_ms());
  m.at = supervisor_->state().at;
  m.numeric_class = supervisor_->state().numeric_class;
  m.tiles = active()->tiles;
  for (const auto kind : storage::all_kinds) m.arrays.push_back({kind, sizeof(float)});
  m.chunks = std::move(*all);
  storage::sort_chunks(m);
  std::vector<incarnation> live;
  for (const auto& [who, w] : workers_) live.push_back(who);
  static_cast<void>(now);
  keeper_->commit(std::move(m), config_.checkpoint.keep, std::move(live),
                  [this](const storage::manifest& contents, result<void> done) {
                    around_.post([contents, done](coordinator_shell& c) {
                      c.committed(contents, done, std::chrono::steady_clock::now());
                    });
                  });
}

void coordinator_shell::committed(const storage::manifest& m, const result<void>& done, time_point now) {
  if (!active_ || m.job != *active_ || !supervisor_) return;
  const auto step = m.standing.step;
  if (!done) return note({event_kind::checkpoint_dropped, to_string(step), done.failure().message, {}});
  note({event_kind::checkpoint_committed,
        to_string(step),
        std::to_string(m.total_bytes()) + " bytes are durable",
        {}});
  for (const auto& [timeline, dropped] : collector_->drop_until(m.standing.timeline, step))
    note({event_kind::checkpoint_dropped, to_string(dropped), "a newer one is complete", {}});
  supervisor_->checkpoint_committed({{step, m.standing.timeline}, m.standing}, now);
  run_effects(now);
}

void coordinator_shell::run(const effect::kill& e, time_point) { kill_process(e.who, e.why); }

void coordinator_shell::run(const effect::end& e, time_point now) {
  auto& job = *active();
  job.stage = e.how == event_kind::job_finished    ? job_stage::finished
              : e.how == event_kind::job_cancelled ? job_stage::cancelled
                                                   : job_stage::failed;
  job.why = e.why;
  if (!e.tile_hashes.empty()) job.final_hash = hash_text(e.tile_hashes);
  journal_->put(job);
  // The supervisor may be what called this; it goes when the effects are done.
  around_.post([ended = *active_](coordinator_shell& c) {
    if (c.active_ != ended) return;
    c.supervisor_.reset();
    c.collector_.reset();
    c.verdicts_.clear();
    c.recovering_.reset();
    c.watchdog_.reset();
    c.active_.reset();
    c.activate_next(std::chrono::steady_clock::now());
  });
  static_cast<void>(now);
}

}  // namespace perdura::coordinator
