// What people see of the coordinator, and what they ask of it.
#include <unistd.h>

#include <algorithm>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t jobs_max = 10'000;
constexpr std::size_t rate_window = 20;  // steps

std::uint64_t ms_since(time_point then, time_point now) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(now - then).count());
}

}  // namespace

admin::cluster_status coordinator_shell::status() const {
  admin::cluster_status s;
  s.version = build_version();
  s.protocol = protocol_version;
  s.storage_format = checkpoint_format_version;
  s.term = options_.term;
  if (supervisor_) s.at = supervisor_->state().at;
  s.uptime_ms = ms_since(started_, std::chrono::steady_clock::now());
  s.pid = static_cast<std::uint32_t>(::getpid());
  s.port = options_.config.port;
  s.admin_port = options_.config.admin_port;
  s.data_folder = options_.data_folder;
  s.log_folder = options_.log_folder;
  s.last_event = journal_->last_event();
  return s;
}

void coordinator_shell::listens_on(std::uint16_t port, std::uint16_t admin_port) {
  options_.config.port = port;
  options_.config.admin_port = admin_port;
}

std::vector<admin::node_info> coordinator_shell::nodes(time_point now) const {
  std::vector<admin::node_info> all;
  for (const auto& [who, n] : nodes_) {
    admin::node_info info;
    info.name = n.hello.name;
    info.host = n.hello.host;
    info.who = who;
    info.devices = n.hello.devices;
    info.last_seen_ms = ms_since(n.heard, now);
    info.pid = n.hello.pid;
    info.state = !n.connected                            ? admin::node_state::gone
                 : n.draining                            ? admin::node_state::draining
                 : now - n.heard > options_.config.lease ? admin::node_state::suspect
                                                         : admin::node_state::up;
    all.push_back(std::move(info));
  }
  return all;
}

admin::worker_state coordinator_shell::state_of(const incarnation& who, const worker_view& w) const {
  if (!supervisor_) return w.is_ready ? admin::worker_state::idle : admin::worker_state::joining;
  if (supervisor_->is_fenced(who)) return admin::worker_state::fenced;
  if (supervisor_->is_member(who))
    return supervisor_->is_draining(who) ? admin::worker_state::leaving : admin::worker_state::member;
  if (supervisor_->is_learner(who)) return admin::worker_state::learning;
  return w.is_ready ? admin::worker_state::idle : admin::worker_state::joining;
}

std::vector<admin::worker_info> coordinator_shell::workers() const {
  std::vector<admin::worker_info> all;
  for (const auto& [who, w] : workers_) {
    admin::worker_info info;
    info.name = w.hello.name;
    info.who = who;
    if (const auto n = nodes_.find(w.hello.node); n != nodes_.end()) info.node = n->second.hello.name;
    info.state = state_of(who, w);
    if (const auto* member = supervisor_ ? supervisor_->state().current.find(who) : nullptr)
      for (const auto& b : member->blocks) info.slots += b.size;
    if (w.last.slots_done > 0)
      info.slot_ms = 1000 * w.last.slot_seconds / static_cast<double>(w.last.slots_done);
    info.step = w.last.step;
    info.phase = to_string(w.last.phase);
    if (supervisor_ && supervisor_->state().newest) {
      const auto next = supervisor_->state().newest->step + 1;
      info.lag = next > w.last.step ? next.value - w.last.step.value : 0;
    }
    info.resident_bytes = w.last.resident_bytes;
    info.pid = w.hello.pid;
    all.push_back(std::move(info));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

admin::job_info coordinator_shell::info_of(const job_record& job) const {
  admin::job_info info;
  info.id = job.id;
  info.why = job.why;
  info.final_hash = job.final_hash;
  info.recoveries = job.recoveries;
  if (const auto config = runtime::parse_job(job.text, job.id)) {
    info.name = config->name;
    info.steps = config->steps;
    if (const auto h = histories_.find(job.id); h != histories_.end() && h->second.steps.size() > 1) {
      const auto& steps = h->second.steps;
      const auto count = std::min(rate_window, steps.size() - 1);
      double ms = 0;
      for (std::size_t i = 0; i < count; ++i) ms += steps[steps.size() - 1 - i].ms;
      if (ms > 0) info.images_per_s = 1000.0 * static_cast<double>(count) * config->batch.size / ms;
    }
  }
  for (const auto& c : keeper_->list(job.id))
    if (!info.last_checkpoint || c.step > *info.last_checkpoint) info.last_checkpoint = c.step;
  switch (job.stage) {
    case job_stage::waiting: info.state = admin::job_state::waiting; break;
    case job_stage::finished: info.state = admin::job_state::finished; break;
    case job_stage::failed: info.state = admin::job_state::failed; break;
    case job_stage::cancelled: info.state = admin::job_state::cancelled; break;
    case job_stage::active: info.state = admin::job_state::starting; break;
  }
  const bool is_active = active_ == job.id;
  if (job.stage == job_stage::waiting) info.why = active_ ? "another job runs: " + *active_ : "workers";
  const auto state = is_active && supervisor_                 ? supervisor_->state()
                     : journal_->state_of(job.id).has_value() ? *journal_->state_of(job.id)
                                                              : durable_state{};
  info.at = state.at;
  info.timeline = state.timeline;
  info.plan = state.current.id;
  if (state.newest) {
    info.step = state.newest->step;
    info.loss = state.newest->outcome.loss;
    info.gradient_norm = state.newest->outcome.gradient_norm;
    info.learning_rate = static_cast<double>(state.newest->outcome.learning_rate);
  }
  if (!is_active || !supervisor_) {
    if (is_active) info.why = "a worker that loads it";
    return info;
  }
  switch (supervisor_->where()) {
    case stage::waiting:
    case stage::reconnecting:
      info.state = state.recovery ? admin::job_state::recovering : admin::job_state::starting;
      info.why = "it waits for " + supervisor_->waiting_for();
      break;
    case stage::fencing:
    case stage::recovering: info.state = admin::job_state::recovering; break;
    case stage::running:
      info.state =
          state.current.action == plan_action::pause ? admin::job_state::paused : admin::job_state::running;
      break;
    case stage::ended: break;
  }
  return info;
}

std::vector<admin::job_info> coordinator_shell::jobs() const {
  std::vector<admin::job_info> all;
  for (const auto& [id, job] : jobs_) all.push_back(info_of(job));
  return all;
}

// ---- by name

result<std::string> coordinator_shell::find_job(const std::string& name) const {
  if (jobs_.empty())
    return error{errc::not_found, "there is no job; submit one with \"perdura submit FILE\""};
  if (name.empty()) return active_ ? *active_ : jobs_.rbegin()->first;
  if (jobs_.contains(name)) return name;
  std::string all;
  const std::string* newest = nullptr;
  for (const auto& [id, job] : jobs_) {
    const auto config = runtime::parse_job(job.text, id);
    if (config && config->name == name) newest = &id;
    all += (all.empty() ? "" : ", ") + id;
  }
  if (newest) return *newest;
  return error{errc::not_found, "there is no job \"" + name + "\"; there are " + all};
}

result<void> coordinator_shell::needs_active(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  const auto& job = jobs_.at(*id);
  if (active_ == *id && supervisor_) return {};
  static constexpr const char* stages[] = {"waits in the queue", "is starting", "has finished", "has failed",
                                           "was cancelled"};
  return error{errc::refused, "job " + *id + " " + stages[static_cast<int>(job.stage)]};
}

result<admin::plan_info> coordinator_shell::plan(const std::string& name) const {
  if (auto ok = needs_active(name); !ok) return ok.failure();
  const auto& current = supervisor_->state().current;
  admin::plan_info info{current.id, {}};
  for (const auto& m : current.members) {
    const auto w = workers_.find(m.who);
    info.members.push_back({w == workers_.end() ? short_name(m.who) : w->second.hello.name, m.who, m.blocks});
  }
  return info;
}

result<std::vector<admin::step_info>> coordinator_shell::steps(const std::string& name, step_number from,
                                                               std::uint32_t limit) {
  auto id = find_job(name);
  if (!id) return id.failure();
  std::vector<admin::step_info> some;
  const auto& all = history_of(*id).steps;
  for (auto i = from.value == 0 ? 0 : from.value - 1; i < all.size() && some.size() < limit; ++i)
    if (all[i].step.value > 0) some.push_back(all[i]);
  return some;
}

result<std::vector<admin::recovery_info>> coordinator_shell::recoveries(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  const auto h = histories_.find(*id);
  return h == histories_.end() ? std::vector<admin::recovery_info>{} : h->second.recoveries;
}

result<std::vector<admin::checkpoint_info>> coordinator_shell::checkpoints(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  return keeper_->list(*id);
}

// ---- writes

admin::submission coordinator_shell::submit(const std::string& text, const std::string& file,
                                            time_point now) {
  admin::submission s;
  const auto config = runtime::parse_job(text, file);
  if (!config) {
    const auto& lines = config.failure().message;
    for (std::size_t at = 0; at < lines.size();) {
      const auto end = std::min(lines.find('\n', at), lines.size());
      if (end > at) s.errors.push_back(lines.substr(at, end - at));
      at = end + 1;
    }
    return s;
  }
  if (jobs_.size() >= jobs_max) {
    s.errors.push_back("there are " + std::to_string(jobs_max) + " jobs already, the most that are kept");
    return s;
  }
  char number[16];
  std::snprintf(number, sizeof number, "%06zu", jobs_.size() + 1);
  job_record job;
  job.id = "j" + std::string(number) + "-" + config->name;
  job.text = text;
  journal_->put(job);
  s.job = job.id;
  jobs_[job.id] = std::move(job);
  activate_next(now);
  run_effects(now);
  return s;
}

result<admin::receipt> coordinator_shell::pause(const std::string& job, time_point now) {
  if (auto ok = needs_active(job); !ok) return ok.failure();
  supervisor_->pause(now);
  run_effects(now);
  return admin::receipt{"it pauses after the step under way"};
}

result<admin::receipt> coordinator_shell::resume(const std::string& job, time_point now) {
  if (auto ok = needs_active(job); !ok) return ok.failure();
  supervisor_->resume(now);
  run_effects(now);
  return admin::receipt{"it goes on"};
}

result<admin::receipt> coordinator_shell::cancel(const std::string& name, time_point now) {
  auto id = find_job(name);
  if (!id) return id.failure();
  auto& job = jobs_.at(*id);
  if (job.stage == job_stage::waiting) {
    job.stage = job_stage::cancelled;
    job.why = "cancelled before it started";
    journal_->put(job);
    return admin::receipt{"it will not start"};
  }
  if (active_ == *id && !supervisor_) {
    out_.push_back(effect::end{event_kind::job_cancelled, "cancelled before it started", {}});
    run_effects(now);
    return admin::receipt{"it will not start"};
  }
  if (auto ok = needs_active(name); !ok) return ok.failure();
  supervisor_->cancel("cancelled by a person");
  run_effects(now);
  return admin::receipt{"it is cancelled; its checkpoints stay"};
}

result<admin::receipt> coordinator_shell::drain(const std::string& name, time_point now) {
  if (auto ok = needs_active(""); !ok) return ok.failure();
  std::vector<incarnation> leaving;
  for (auto& [who, n] : nodes_) {
    if (n.hello.name != name) continue;
    n.draining = true;
    for (const auto& [worker, w] : workers_)
      if (w.hello.node == who) leaving.push_back(worker);
  }
  for (const auto& [who, w] : workers_)
    if (w.hello.name == name) leaving.push_back(who);
  if (leaving.empty())
    return error{errc::not_found, "there is no node or worker \"" + name + "\" with workers"};
  std::size_t staying = 0;
  for (const auto& m : supervisor_->state().current.members)
    if (std::find(leaving.begin(), leaving.end(), m.who) == leaving.end()) ++staying;
  if (staying == 0)
    return error{errc::refused, "nobody would be left to hold the state; pause or cancel the job instead"};
  for (const auto& who : leaving) supervisor_->drain(who, now);
  run_effects(now);
  return admin::receipt{std::to_string(leaving.size()) + " workers hand over what they hold, then stay idle"};
}

result<admin::receipt> coordinator_shell::kill(const std::string& worker) {
  for (const auto& [who, w] : workers_) {
    if (w.hello.name != worker) continue;
    kill_process(who, "asked for by a person");
    return admin::receipt{"its node agent kills it and starts another"};
  }
  return error{errc::not_found, "there is no worker \"" + worker + "\""};
}

result<admin::receipt> coordinator_shell::checkpoint_now(const std::string& job, time_point now) {
  if (auto ok = needs_active(job); !ok) return ok.failure();
  if (supervisor_->where() != stage::running)
    return error{errc::unavailable, "the job does not run right now"};
  if (supervisor_->state().current.action == plan_action::pause)
    return error{errc::refused, "the job is paused; no step follows that could be saved"};
  supervisor_->snapshot_now(now);
  run_effects(now);
  return admin::receipt{"the next step but one is saved"};
}

admin::receipt coordinator_shell::shut_down() {
  for (const auto& [who, n] : nodes_)
    if (n.connected) around_.send_node({options_.term, who, stop_node{"the cluster is shut down"}});
  around_.end();
  return {
      "all nodes stop; a job that runs goes on from its last checkpoint when the cluster is started again"};
}

void coordinator_shell::audit(const admin::audit_entry& entry) {
  note({event_kind::audit,
        entry.subject,
        entry.who + " asked to " + entry.action + ": " + entry.outcome,
        {{"who", entry.who}, {"action", entry.action}}});
}

}  // namespace perdura::coordinator
