// Carries out what the scheduler decides: which worker serves which job.
#include <algorithm>
#include <set>

#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

namespace {
constexpr std::chrono::seconds note_lacks_every{5};
}

// After the events that are waiting: many workers say hello at once.
void coordinator_shell::place_soon() {
  if (std::exchange(placing_, true)) return;
  around_.post([](coordinator_shell& c) { c.place(std::chrono::steady_clock::now()); });
}

void coordinator_shell::place(time_point now) {
  placing_ = false;
  placed_at_ = now;
  const auto decided = scheduler_.decide(demands(), supplies(), now);
  carry_out(decided, now);
  note_lacks(decided, now);
}

std::vector<job_demand> coordinator_shell::demands() const {
  std::vector<job_demand> all;
  for (const auto& [id, job] : jobs_) {
    const auto& r = job.record;
    if (r.stage != job_stage::active && r.stage != job_stage::waiting) continue;
    // One that rests has yet to be cleared away.
    if (r.stage == job_stage::waiting && job.run) continue;
    const auto& e = job.config.elastic;
    job_demand d;
    d.id = id;
    d.priority = job.config.priority;
    d.min_workers = e.min_workers;
    d.max_workers = e.max_workers == 0 ? 0 : e.max_workers + e.spares;
    d.started = r.stage == job_stage::active;
    d.computes = job.run && job.run->computes();
    d.stopping = r.stopping;
    d.on_hold = !d.started && r.on_hold;
    d.unfit = job.unfit;
    all.push_back(std::move(d));
  }
  return all;
}

std::vector<worker_supply> coordinator_shell::supplies() const {
  std::vector<worker_supply> all;
  all.reserve(workers_.size());
  for (const auto& [who, w] : workers_) {
    worker_supply s;
    s.who = who;
    s.name = w.hello.name;
    if (const auto n = nodes_.find(w.hello.node); n != nodes_.end()) s.node = n->second.hello.name;
    s.job = w.job;
    s.leaving = w.leaving;
    s.going = is_going(w);
    const auto* run = run_of(w.job);
    const auto* member = run && run->logic() ? run->logic()->state().current.find(who) : nullptr;
    if (member)
      for (const auto& b : member->blocks) s.slots += b.size;
    all.push_back(std::move(s));
  }
  return all;
}

void coordinator_shell::carry_out(const schedule& s, time_point now) {
  for (const auto& x : s.stops) {
    auto& job = jobs_.at(x.job);
    if (!job.run || job.record.stopping) continue;
    note(x.job, {event_kind::job_stopped, x.job, "to give up its workers: " + x.reason, {}});
    job.record.stopping = true;
    journal_->put(job.record);
    job.run->stop(now);
  }
  for (const auto& x : s.takes) take(x, now);
  std::map<std::string, std::vector<schedule::move>> newcomers;
  for (const auto& x : s.starts) {
    auto& job = jobs_.at(x.job);
    job.record.stage = job_stage::active;
    journal_->put(job.record);
    note(x.job, {event_kind::job_started, x.job, x.reason, {}});
    start_run(job, now);
    for (const auto& who : x.workers) newcomers[x.job].push_back({who, x.job, "the job starts"});
  }
  for (const auto& x : s.gives) newcomers[x.job].push_back(x);
  for (const auto& [id, all] : newcomers) {
    for (const auto& x : all) {
      auto& w = workers_.at(x.who);
      assign(w, id);
      note(id, {event_kind::worker_given, w.hello.name, x.reason, {{"incarnation", to_string(x.who)}}});
    }
    tell_peers(id);
    for (const auto& x : all) send(x.who, job_order{id, jobs_.at(id).record.text, options_.store});
  }
}

void coordinator_shell::take(const schedule::move& m, time_point now) {
  const auto found = workers_.find(m.who);
  if (found == workers_.end() || found->second.job != m.job) return;
  auto& w = found->second;
  note(m.job, {event_kind::worker_taken, w.hello.name, m.reason, {{"incarnation", to_string(m.who)}}});
  w.leaving = true;
  if (auto* run = run_of(m.job)) run->drain({m.who}, std::nullopt, m.reason, now);
}

// What is missing changes with each worker that comes or goes: the log has it now and then.
void coordinator_shell::note_lacks(const schedule& s, time_point now) {
  for (auto& [id, job] : jobs_) {
    const auto lack = s.lacks.find(id);
    const std::string text = lack == s.lacks.end() ? "" : lack->second;
    const auto* logic = job.run ? job.run->logic() : nullptr;
    if (logic && logic->where() == stage::reconnecting) continue;  // they have yet to come back
    const bool is_news = text != job.lacks && !text.empty();
    job.lacks = text;
    if (!is_news || (job.lack_noted && now - *job.lack_noted < note_lacks_every)) continue;
    job.lack_noted = now;
    note(id, {event_kind::job_waits, id, text, {}});
  }
}

void coordinator_shell::refuse(worker_view& w) {
  const auto job = jobs_.find(w.job);
  if (job == jobs_.end()) return;
  job->second.unfit.push_back(w.hello.who);
  if (job->second.run && !job->second.run->can_spare(w.hello.who)) return;
  dismiss(w);
  tell_peers(job->first);
  place_soon();
}

void coordinator_shell::free_those_that_let_go() {
  std::set<std::string> smaller;
  for (auto& [who, w] : workers_) {
    if (w.job.empty() || (!w.leaving && !is_going(w))) continue;
    const auto* run = run_of(w.job);
    if (run && !run->can_spare(who)) continue;
    smaller.insert(w.job);
    dismiss(w);
  }
  for (const auto& job : smaller) tell_peers(job);
  if (!smaller.empty()) place_soon();
}

}  // namespace perdura::coordinator
