#include "coordinator/coordinator_shell.hpp"

#include <algorithm>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"

namespace perdura::coordinator {

using namespace std::chrono_literals;

namespace {

constexpr std::size_t workers_max = 100'000;
// A job that has lost a worker waits so many leases for another before lower ones give up theirs.
constexpr int patience_leases = 10;
constexpr std::chrono::milliseconds place_at_least_every{500};  // patience is a matter of time

}  // namespace

coordinator_shell::coordinator_shell(shell_options options, std::unique_ptr<journal> memory,
                                     std::unique_ptr<checkpoint_keeper> keeper, surroundings around)
    : options_(std::move(options)),
      journal_(std::move(memory)),
      around_(std::move(around)),
      leases_(options_.config.lease),
      keeper_(std::move(keeper)),
      scheduler_(options_.config.lease * patience_leases) {}

coordinator_shell::~coordinator_shell() {
  keeper_.reset();  // its thread posts here
}

result<void> coordinator_shell::begin(time_point now) {
  auto jobs = journal_->jobs();
  if (!jobs) return jobs.failure();
  auto drains = journal_->drains();
  if (!drains) return drains.failure();
  drains_ = std::move(*drains);
  for (auto& job : *jobs) jobs_[job.id].record = std::move(job);
  note("", {event_kind::coordinator_started,
            "term " + to_string(options_.term),
            std::string(version_text("perdura-coordinator")) + " listens on port " +
                std::to_string(options_.config.port),
            {}});
  for (auto& [id, job] : jobs_) {
    if (job.record.stage != job_stage::active && job.record.stage != job_stage::waiting) continue;
    auto config = runtime::parse_job(job.record.text, id);
    if (!config) {
      if (job.record.stage == job_stage::active) return config.failure();
      job.record.stage = job_stage::failed;
      job.record.why = config.failure().message;
      journal_->put(job.record);
      continue;
    }
    job.config = std::move(*config);
    if (job.record.stage == job_stage::active) start_run(job, now);
  }
  place_soon();
  return {};
}

void coordinator_shell::note(const std::string& job, const event& e) {
  journal_->note(job, e);
  around_.events_grew();
}

void coordinator_shell::send(const incarnation& to, coordinator_order order) {
  around_.send({options_.term, to, std::move(order)});
}

// ---- workers

const job_run* coordinator_shell::run_that_fenced(const incarnation& who) const {
  for (const auto& [id, job] : jobs_)
    if (job.run && job.run->is_fenced(who)) return job.run.get();
  return nullptr;
}

job_run* coordinator_shell::run_of(const std::string& job) {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.run.get();
}

const job_run* coordinator_shell::run_of(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? nullptr : found->second.run.get();
}

job_run* coordinator_shell::run_that_counts_on(const incarnation& who) {
  for (auto& [id, job] : jobs_)
    if (job.run && job.run->counts_on(who)) return job.run.get();
  return nullptr;
}

result<welcome> coordinator_shell::greet(const worker_hello& hello, time_point) {
  if (run_that_fenced(hello.who)) return error{errc::refused, "this life was fenced; come back as a new one"};
  if (hello.who.is_none()) return error{errc::refused, "a hello without an incarnation"};
  if (!workers_.contains(hello.who) && workers_.size() >= workers_max)
    return error{errc::exhausted, "more than " + std::to_string(workers_max) + " workers"};
  auto& w = workers_[hello.who];
  w.hello = hello;
  leases_.renew(hello.who);
  w.connected = true;
  w.is_ready = false;
  if (w.job.empty())
    if (const auto* run = run_that_counts_on(hello.who)) w.job = run->record().id;
  if (w.job.empty()) place_soon();
  if (const auto* run = run_of(w.job)) {
    tell_peers(w.job);
    send(hello.who, job_order{w.job, run->record().text, options_.store});
  }
  return welcome{options_.term, static_cast<std::uint32_t>(options_.config.heartbeat.count())};
}

// The workers of a job hold links to each other, and to nobody else.
void coordinator_shell::tell_peers(const std::string& job) {
  auto& entry = jobs_.at(job);
  // After a restart only those are known that have come back, and a link to the others must not be let go.
  const auto* logic = entry.run ? entry.run->logic() : nullptr;
  entry.peers_wait = logic && logic->where() == stage::reconnecting;
  if (entry.peers_wait) return;
  peers_order peers;
  for (const auto& [who, w] : workers_)
    if (w.job == job) peers.peers.push_back({who, w.hello.link});
  for (const auto& [who, w] : workers_) {
    if (!w.connected || w.job != job) continue;
    auto others = peers;
    std::erase_if(others.peers, [&](const peer& p) { return p.who == who; });
    send(who, std::move(others));
  }
}

void coordinator_shell::assign(worker_view& w, const std::string& job) {
  w.job = job;
  w.is_ready = false;
  // What it said of itself was about another job, if about any.
  w.hello.newest.reset();
  w.hello.plan = {};
}

void coordinator_shell::dismiss(worker_view& w) {
  if (auto* run = run_of(w.job)) run->dismissed(w.hello.who);
  const auto job = std::exchange(w.job, "");
  w.is_ready = false;
  w.leaving = false;
  send(w.hello.who, peers_order{});
  send(w.hello.who, dismiss_order{job});
}

void coordinator_shell::report(const worker_report& r, time_point now) {
  const auto who = std::visit([](const auto& m) { return m.who; }, r.message);
  const auto found = workers_.find(who);
  if (found == workers_.end()) {
    if (const auto* run = run_that_fenced(who)) send(who, fenced_order{run->at()});
    return;
  }
  auto& w = found->second;
  leases_.renew(who);
  if (const auto* ready = std::get_if<job_ready>(&r.message)) return on_job_ready(w, *ready, now);
  if (const auto* f = std::get_if<worker_failure>(&r.message)) return on_worker_failure(w, *f, now);
  auto* run = run_of(w.job);
  if (!run || !w.is_ready) return;
  run->received(r.message, now);
  if (std::holds_alternative<released_report>(r.message)) free_those_that_let_go();
}

void coordinator_shell::on_worker_failure(worker_view& w, const worker_failure& f, time_point now) {
  auto* run = run_of(w.job);
  if (!run) return;
  if (w.is_ready) {
    lose(f.who, f.why, now);
    return kill_process(f.who, f.why);
  }
  const bool somebody_can = std::any_of(workers_.begin(), workers_.end(), [&](const auto& x) {
    return x.second.is_ready && x.second.job == w.job;
  });
  run->not_loaded(w.hello.name, f, somebody_can, now);
  refuse(w);
}

void coordinator_shell::on_job_ready(worker_view& w, const job_ready& r, time_point now) {
  if (r.job != w.job) {
    // It serves another by now, and has been told; or it comes from a job that is over.
    if (w.job.empty()) send(r.who, dismiss_order{r.job});
    return;
  }
  if (auto* run = run_of(w.job)) {
    const auto node = nodes_.find(w.hello.node);
    const auto labels = node == nodes_.end() ? node_labels{} : node->second.hello.labels;
    w.is_ready = run->loaded(w.hello, labels, is_going(w), r, now);
    if (jobs_.at(r.job).peers_wait) tell_peers(r.job);
    if (!w.is_ready) refuse(w);
  }
}

void coordinator_shell::beat(const heartbeat& h, time_point now) {
  const auto w = workers_.find(h.who);
  if (w == workers_.end()) {
    if (const auto* run = run_that_fenced(h.who)) send(h.who, fenced_order{run->at()});
    return;
  }
  leases_.renew(h.who);
  w->second.last = h;
  if (auto* run = run_of(w->second.job)) run->beat(h, now);
}

void coordinator_shell::lose(const incarnation& who, const std::string& why, time_point now) {
  const auto w = workers_.find(who);
  if (w == workers_.end()) return;
  const auto job = w->second.job;
  workers_.erase(w);
  for (auto& [id, entry] : jobs_) std::erase(entry.unfit, who);
  leases_.forget(who);
  if (auto* run = run_of(job)) {
    run->lost(who, why, now);
    tell_peers(job);
    place_soon();
  }
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
  if (const auto slept = leases_.tick(now); slept.count() > 0) {
    log::warn("this process did not run for " + std::to_string(slept / 1ms) +
              " ms; they count for nobody's lease");
    for (auto& [who, n] : nodes_) n.heard = now;
  }
  for (const auto& who : leases_.expired()) {
    const std::string why = "its lease of " + std::to_string(lease.count()) + " ms expired";
    kill_process(who, why);
    lose(who, why, now);
  }
  std::erase_if(nodes_,
                [&](const auto& n) { return !n.second.connected && now - n.second.heard > 2 * lease; });
  for (auto& [id, job] : jobs_) {
    if (!job.run) continue;
    job.run->tick(now);
    if (job.peers_wait) tell_peers(id);
  }
  free_those_that_let_go();
  see_off();
  if (!placed_at_ || now - *placed_at_ >= place_at_least_every) place(now);
}

// ---- jobs

std::vector<std::string> coordinator_shell::running() const {
  std::vector<std::string> all;
  for (const auto& [id, job] : jobs_)
    if (job.run) all.push_back(id);
  return all;
}

job_course& coordinator_shell::course_of(job_entry& job) {
  if (!job.course) job.course = std::make_unique<job_course>(job.record.id, *journal_);
  return *job.course;
}

void coordinator_shell::start_run(job_entry& job, time_point now) {
  const auto& c = options_.config;
  job_host& host = *this;
  job.run = std::make_unique<job_run>(
      job.record, job.config,
      job_run_options{options_.term, c.lease, c.gather, c.step_timeout, c.join_timeout}, course_of(job),
      *journal_, *keeper_, host);
  job.run->begin(now);
}

void coordinator_shell::ended(const std::string& job) {
  // The run may be what called this; it goes when its effects are done.
  around_.post([job](coordinator_shell& c) { c.clear_away(job); });
}

void coordinator_shell::clear_away(const std::string& job) {
  jobs_.at(job).run.reset();
  for (auto& [who, w] : workers_)
    if (w.job == job) dismiss(w);
  place_soon();
}

void coordinator_shell::commit(storage::manifest m, storage::retention_policy policy) {
  std::vector<incarnation> live;
  for (const auto& [who, w] : workers_) live.push_back(who);
  keeper_->commit(std::move(m), policy, std::move(live),
                  [this](const storage::manifest& contents, result<void> done) {
                    around_.post([contents, done](coordinator_shell& c) {
                      if (auto* run = c.run_of(contents.job))
                        run->committed(contents, done, std::chrono::steady_clock::now());
                    });
                  });
}

}  // namespace perdura::coordinator
