#include "coordinator/job_run.hpp"

#include <algorithm>
#include <string_view>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t verdicts_kept = 256;
constexpr std::chrono::seconds last_checkpoint_limit{30};  // of a job that is stopped

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::string hash_text(const std::vector<std::uint64_t>& tile_hashes) {
  std::uint64_t all = 0xcbf29ce484222325ULL;
  for (const auto h : tile_hashes) all = (all ^ h) * 0x100000001b3ULL ^ (all >> 29);
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(all));
  return text;
}

// A digest of all that is trained, as it was saved.
std::string trained_digest(const storage::manifest& m) {
  std::string hashes;
  for (const auto& c : m.chunks)
    if (c.kind == storage::chunk_kind::parameters) hashes += to_string(c.record.hash);
  return to_string(storage::hash_of(std::string_view(hashes)));
}

// Empty where they do not make up all elements of the tiles: checkpoints are good without names.
std::vector<storage::tensor_entry> tensors_of(const job_ready& r) {
  constexpr std::size_t name_bytes_max = 256;
  const std::uint64_t elements = r.tiles.empty() ? 0 : r.tiles.back().first + r.tiles.back().size;
  std::vector<storage::tensor_entry> tensors;
  std::uint64_t next = 0;
  for (const auto& t : r.tensors) {
    std::uint64_t count = 1;
    bool fits = t.first == next && t.name.size() <= name_bytes_max &&
                t.shape.size() <= storage::tensor_rank_max && tensors.size() < storage::manifest_tensors_max;
    for (const auto n : t.shape) {
      fits = fits && n != 0 && count <= elements / n;
      count *= n;
    }
    if (!fits || count > elements - next) return {};
    next += count;
    tensors.push_back({t.name, t.shape, t.first});
  }
  return next == elements ? tensors : std::vector<storage::tensor_entry>{};
}

}  // namespace

job_run::job_run(job_record& record, job_config config, job_run_options options, job_course& course,
                 journal& memory, checkpoint_keeper& keeper, job_host& host)
    : record_(record),
      config_(std::move(config)),
      options_(options),
      course_(course),
      journal_(memory),
      keeper_(keeper),
      host_(host),
      watchdog_(options.step_timeout),
      saves_(std::chrono::seconds(config_.checkpoint.interval_s),
             std::chrono::seconds(config_.checkpoint.promise_s)) {}

void job_run::begin(time_point now) {
  if (!record_.tiles.empty()) make_supervisor(now);
  run_effects(now);
  if (record_.stopping) stop(now);
}

result<restore_point> job_run::find_restore_point() {
  auto newest = keeper_.newest(record_.id);
  if (!newest) return newest.failure();
  if (!*newest && config_.start_from.empty()) return restore_point{};
  if (!*newest) {
    auto forked = keeper_.fork(config_.start_from, empty_manifest(), step_number(config_.steps));
    if (!forked) return forked.failure();
    *newest = std::move(*forked);
  }
  return restore_point{{(*newest)->standing.step, (*newest)->standing.timeline}, (*newest)->standing};
}

// Says whose it is, but nothing of the state yet.
storage::manifest job_run::empty_manifest() const {
  storage::manifest m;
  m.job = record_.id;
  m.job_text = record_.text;
  m.created_by = version_text("perdura-coordinator") + ", term " + to_string(options_.term);
  m.created_unix_ms = static_cast<std::uint64_t>(unix_ms());
  m.tiles = record_.tiles;
  m.tensors = tensors_;
  for (const auto kind : storage::all_kinds) m.arrays.push_back({kind, sizeof(float)});
  return m;
}

void job_run::make_supervisor(time_point now) {
  auto state = journal_.state_of(record_.id);
  auto restore = find_restore_point();
  if (!state || !restore) {
    const auto why = !state ? state.failure().message : restore.failure().message;
    log::error(why);
    out_.push_back(effect::end{event_kind::job_failed, why, {}});
    return;
  }
  supervisor_options o;
  o.tiles = static_cast<std::uint32_t>(record_.tiles.size());
  o.replicas = holders_wanted(config_);
  o.weights = weights_of(record_.tiles);
  o.lease = options_.lease;
  o.gather = options_.gather;
  o.adopt_timeout = options_.step_timeout;
  o.learn_timeout = options_.join_timeout;
  o.link_patience = options_.lease;
  collector_.emplace(record_.tiles.size());
  supervisor_ =
      std::make_unique<supervisor>(options_.term, config_, o, std::move(*state), *restore, out_, now);
}

bool job_run::counts_on(const incarnation& who) const {
  if (!supervisor_) return false;
  const auto& s = supervisor_->state();
  return s.current.has_member(who) || (s.pending && s.pending->next.has_member(who)) ||
         (s.recovery && !s.started && s.recovery->next.has_member(who)) ||
         std::find(s.releasing.begin(), s.releasing.end(), who) != s.releasing.end();
}

bool job_run::can_spare(const incarnation& who) const {
  if (!supervisor_) return true;
  const auto where = supervisor_->where();
  return !supervisor_->is_involved(who) && (where == stage::running || where == stage::waiting);
}

bool job_run::computes() const {
  return supervisor_ && supervisor_->where() != stage::waiting && supervisor_->where() != stage::ended;
}

// ---- events

bool job_run::loaded(const worker_hello& hello, const node_labels& at, bool is_going, const job_ready& r,
                     time_point now) {
  if (record_.tiles.empty()) {
    record_.tiles = r.tiles;
    journal_.put(record_);
    make_supervisor(now);
  } else if (record_.tiles != r.tiles) {
    host_.note(
        record_.id,
        {event_kind::worker_refused, hello.name, "it cuts the model into other tiles: another build?", {}});
    return false;
  }
  if (tensors_.empty()) tensors_ = tensors_of(r);
  if (supervisor_) {
    auto ready = hello;
    ready.numeric_class = r.numeric_class;
    if (is_going) supervisor_->drain({hello.who}, std::nullopt, "its node is to go", now);
    supervisor_->arrived(ready, at, now);
  }
  const bool has_other_bits = supervisor_ && supervisor_->state().numeric_class != r.numeric_class;
  run_effects(now);
  return !has_other_bits;
}

void job_run::not_loaded(const std::string& name, const worker_failure& f, bool somebody_can,
                         time_point now) {
  host_.note(record_.id, {event_kind::worker_refused, name, f.why, {{"incarnation", to_string(f.who)}}});
  if (somebody_can || supervisor_) return;
  const auto why = "no worker can load it: " + f.why;
  host_.note(record_.id, {event_kind::job_failed, record_.id, why, {}});
  out_.push_back(effect::end{event_kind::job_failed, why, {}});
  run_effects(now);
}

void job_run::received(const worker_message& m, time_point now) {
  if (!supervisor_) return;
  if (const auto* v = std::get_if<verdict_report>(&m)) on_verdict(*v, now);
  supervisor_->received(m, now);
  run_effects(now);
}

void job_run::on_verdict(const verdict_report& r, time_point now) {
  const auto& v = r.observed;
  if (v.timeline != supervisor_->state().timeline) return;
  if (!verdicts_.emplace(std::pair{v.timeline, v.step}, v).second) return;
  if (verdicts_.size() > verdicts_kept) verdicts_.erase(verdicts_.begin());
  if (!supervisor_->state().newest || v.step > supervisor_->state().newest->step) watchdog_.step_decided(now);
  course_.step_decided(v, now);
}

void job_run::beat(const heartbeat& h, time_point now) {
  watchdog_.heard(h, now);
  if (supervisor_) supervisor_->beat(h, now);
  run_effects(now);
}

void job_run::lost(const incarnation& who, const std::string& why, time_point now) {
  watchdog_.forget(who);
  if (supervisor_) supervisor_->lost(who, why, now);
  run_effects(now);
}

void job_run::tick(time_point now) {
  if (supervisor_) supervisor_->tick(now);
  run_effects(now);
  look_for_hung(now);
  look_after_checkpoints(now);
  rest_if_possible(now);
}

void job_run::look_after_checkpoints(time_point now) {
  const auto advice = saves_.tick(computes() && !stop_by_, now);
  if (!advice.alarm.empty())
    host_.note(record_.id, {event_kind::checkpoint_alarm, record_.id, advice.alarm, {}});
  if (!advice.snapshot || !supervisor_) return;
  supervisor_->snapshot_now(now);
  run_effects(now);
}

void job_run::look_for_hung(time_point now) {
  if (!supervisor_) return;
  const auto& s = supervisor_->state();
  const bool all_done = s.newest && s.newest->step.value >= config_.steps;
  if (supervisor_->where() != stage::running || s.current.action != plan_action::train || all_done)
    return watchdog_.excuse(now);
  const auto hung = watchdog_.late(s.current, now);
  if (!hung) return;
  if (hung->only_waits) {
    watchdog_.excuse(now);
    supervisor_->stalled(hung->who, hung->why, now);
    return run_effects(now);
  }
  host_.kill_process(hung->who, hung->why);
  host_.lose(hung->who, hung->why, now);
}

// In packs that the checkpoint before did not need.
std::uint64_t job_run::bytes_new_in(const storage::manifest& m) {
  std::set<std::string> packs;
  std::set<std::pair<std::string_view, std::uint64_t>> seen;
  std::uint64_t bytes = 0;
  for (const auto& c : m.chunks) {
    const auto& r = c.record;
    packs.insert(r.pack);
    if (!saved_packs_.contains(r.pack) && seen.emplace(r.pack, r.offset).second) bytes += r.stored_size;
  }
  for (const auto& r : m.bases) packs.insert(r.pack);
  saved_packs_ = std::move(packs);
  return bytes;
}

void job_run::committed(const storage::manifest& m, const result<void>& done, time_point now) {
  if (!supervisor_) return;
  const auto step = m.standing.step;
  if (!done)
    return host_.note(record_.id,
                      {event_kind::checkpoint_dropped, to_string(step), done.failure().message, {}});
  const auto written = std::to_string(bytes_new_in(m));
  host_.note(record_.id,
             {event_kind::checkpoint_committed,
              to_string(step),
              std::to_string(m.total_bytes()) + " bytes are durable, " + written + " were written for them",
              {{"bytes", std::to_string(m.total_bytes())}, {"written", written}}});
  if (auto alarm = saves_.committed(step, trained_digest(m), now); !alarm.empty())
    host_.note(record_.id, {event_kind::checkpoint_alarm, to_string(step), std::move(alarm), {}});
  for (const auto& [timeline, dropped] : collector_->drop_until(m.standing.timeline, step))
    host_.note(record_.id,
               {event_kind::checkpoint_dropped, to_string(dropped), "a newer one is complete", {}});
  supervisor_->checkpoint_committed({{step, m.standing.timeline}, m.standing}, now);
  run_effects(now);
}

// ---- commands

void job_run::pause(time_point now) {
  supervisor_->suspend(now);  // with a snapshot: it may have to give its workers up
  run_effects(now);
}

void job_run::resume(time_point now) {
  supervisor_->resume(now);
  run_effects(now);
}

void job_run::cancel(time_point now) {
  if (supervisor_)
    supervisor_->cancel("cancelled by a person");
  else
    out_.push_back(effect::end{event_kind::job_cancelled, "cancelled before it started", {}});
  run_effects(now);
}

void job_run::snapshot_now(time_point now) {
  supervisor_->snapshot_now(now);
  run_effects(now);
}

void job_run::stop(time_point now) {
  stop_by_ = now + last_checkpoint_limit;
  if (supervisor_) supervisor_->suspend(now);
  run_effects(now);
  rest_if_possible(now);
}

void job_run::rest_if_possible(time_point now) {
  if (!stop_by_ || record_.stage != job_stage::active) return;
  const bool in_time = now < *stop_by_;
  if (supervisor_ && in_time && !supervisor_->is_at_rest()) return;
  if (supervisor_ && !in_time && supervisor_->where() != stage::running) return;  // a recovery comes first
  stop_by_.reset();
  std::string saved = "nothing was computed yet";
  if (supervisor_) {
    const auto& s = supervisor_->state();
    if (s.newest) saved = "after step " + to_string(s.newest->step) + "; it goes on from its last checkpoint";
    journal_.put(record_.id, without_workers(s));
  }
  record_.stage = job_stage::waiting;
  record_.stopping = false;
  journal_.put(record_);
  host_.note(record_.id, {event_kind::job_stopped, record_.id, saved, {}});
  course_.interrupted();
  host_.ended(record_.id);
}

void job_run::dismissed(const incarnation& who) {
  watchdog_.forget(who);
  if (supervisor_) supervisor_->dismissed(who);
  run_effects(std::chrono::steady_clock::now());
}

void job_run::drain(const std::vector<incarnation>& who, std::optional<std::chrono::milliseconds> within,
                    const std::string& why, time_point now) {
  if (supervisor_) supervisor_->drain(who, within, why, now);
  run_effects(now);
}

// ---- effects

void job_run::run_effects(time_point now) {
  if (running_effects_) return;
  running_effects_ = true;
  while (!out_.empty()) {
    const auto batch = std::move(out_);
    out_.clear();
    for (const auto& item : batch) std::visit([&](const auto& e) { run(e, now); }, item);
  }
  running_effects_ = false;
}

void job_run::run(const effect::persist& e, time_point) { journal_.put(record_.id, *e.state); }

void job_run::run(const effect::record& e, time_point) { journal_.put_newest(record_.id, e.newest); }

void job_run::run(const effect::send& e, time_point) {
  // The supervisor knows the job's name, a worker its id.
  if (std::holds_alternative<dismiss_order>(*e.order)) return host_.send(e.to, dismiss_order{record_.id});
  host_.send(e.to, *e.order);
}

void job_run::run(const effect::note& e, time_point now) {
  if (course_.noticed(e.what, now)) ++record_.recoveries;
  host_.note(record_.id, e.what);
}

void job_run::run(const effect::collect& e, time_point) {
  auto chunk = storage::from_report(e.chunk);
  if (!chunk) return log::warn(chunk.failure().message);
  auto all = collector_->add(e.chunk.timeline, e.chunk.step, *std::move(chunk));
  if (!all) return;
  const auto v = verdicts_.find({e.chunk.timeline, e.chunk.step});
  const auto& newest = supervisor_->state().newest;
  auto m = empty_manifest();
  if (v != verdicts_.end())
    m.standing = v->second;
  else if (newest && newest->step == e.chunk.step && newest->timeline == e.chunk.timeline)
    m.standing = *newest;
  else
    return host_.note(
        record_.id,
        {event_kind::checkpoint_dropped, to_string(e.chunk.step), "its verdict is not on record", {}});
  m.at = supervisor_->state().at;
  m.numeric_class = supervisor_->state().numeric_class;
  m.chunks = std::move(all->chunks);
  m.bases = std::move(all->bases);
  storage::sort_chunks(m);
  host_.commit(std::move(m), {config_.checkpoint.keep, config_.checkpoint.keep_every_hours});
}

void job_run::run(const effect::kill& e, time_point) { host_.kill_process(e.who, e.why); }

void job_run::run(const effect::end& e, time_point) {
  record_.stage = e.how == event_kind::job_finished    ? job_stage::finished
                  : e.how == event_kind::job_cancelled ? job_stage::cancelled
                                                       : job_stage::failed;
  record_.why = e.why;
  if (!e.tile_hashes.empty()) record_.final_hash = hash_text(e.tile_hashes);
  journal_.put(record_);
  course_.interrupted();
  host_.ended(record_.id);
}

}  // namespace perdura::coordinator
