// What people see of the coordinator. What they ask of it is in coordinator_commands.cpp.
#include <unistd.h>

#include <algorithm>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

namespace {

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
  for (const auto& [id, job] : jobs_)
    if (job.run) s.at = std::max(s.at, job.run->at());
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
    info.host_label = n.hello.labels.host;
    info.rack = n.hello.labels.rack;
    info.zone = n.hello.labels.zone;
    tell_drain(who, info.leaving);
    info.state = !n.connected                            ? admin::node_state::gone
                 : info.leaving.is_going                 ? admin::node_state::draining
                 : now - n.heard > options_.config.lease ? admin::node_state::suspect
                                                         : admin::node_state::up;
    all.push_back(std::move(info));
  }
  return all;
}

admin::worker_state coordinator_shell::state_of(const incarnation& who, const worker_view& w) const {
  const auto* run = run_of(w.job);
  if (!run) return admin::worker_state::idle;
  const auto* logic = run->logic();
  if (!logic) return w.is_ready ? admin::worker_state::idle : admin::worker_state::joining;
  if (logic->is_fenced(who)) return admin::worker_state::fenced;
  if (logic->is_member(who))
    return logic->is_draining(who) ? admin::worker_state::leaving : admin::worker_state::member;
  if (logic->is_learner(who)) return admin::worker_state::learning;
  return w.is_ready ? admin::worker_state::idle : admin::worker_state::joining;
}

admin::worker_info coordinator_shell::info_of(const incarnation& who, const worker_view& w) const {
  admin::worker_info info;
  info.name = w.hello.name;
  info.who = who;
  if (const auto n = nodes_.find(w.hello.node); n != nodes_.end()) info.node = n->second.hello.name;
  info.state = state_of(who, w);
  if (w.last.slots_done > 0)
    info.slot_ms = 1000 * w.last.slot_seconds / static_cast<double>(w.last.slots_done);
  info.step = w.last.step;
  info.phase = to_string(w.last.phase);
  info.resident_bytes = w.last.resident_bytes;
  info.pid = w.hello.pid;
  info.job = w.job;
  tell_drain(w.hello.node, info.leaving);
  tell_drain(who, info.leaving);
  const auto* run = run_of(w.job);
  if (!run || !run->logic()) return info;
  const auto& state = run->logic()->state();
  if (const auto* member = state.current.find(who))
    for (const auto& b : member->blocks) info.slots += b.size;
  const auto& members = state.current.members;
  const auto self = std::find_if(members.begin(), members.end(), [&](const auto& m) { return m.who == who; });
  const auto index = static_cast<member_index>(self - members.begin());
  for (const auto& holders : state.current.holders) {
    info.tiles_owned += holders.front() == index ? 1 : 0;
    info.tiles_held += std::count(holders.begin(), holders.end(), index) > 0 ? 1 : 0;
  }
  if (state.newest) {
    const auto next = state.newest->step + 1;
    info.lag = next > w.last.step ? next.value - w.last.step.value : 0;
  }
  return info;
}

std::vector<admin::worker_info> coordinator_shell::workers() const {
  std::vector<admin::worker_info> all;
  for (const auto& [who, w] : workers_) all.push_back(info_of(who, w));
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return all;
}

namespace {

// Where the job is, by what its supervisor does.
void tell_state(admin::job_info& info, const supervisor& logic) {
  const auto& state = logic.state();
  switch (logic.where()) {
    case stage::waiting:
    case stage::reconnecting:
      info.state = state.recovery ? admin::job_state::recovering : admin::job_state::starting;
      info.why = "it waits for " + logic.waiting_for();
      break;
    case stage::fencing:
    case stage::recovering: info.state = admin::job_state::recovering; break;
    case stage::running:
      info.state =
          state.current.action == plan_action::pause ? admin::job_state::paused : admin::job_state::running;
      break;
    case stage::ended: break;
  }
}

void tell_progress(admin::job_info& info, const durable_state& state) {
  info.at = state.at;
  info.timeline = state.timeline;
  info.plan = state.current.id;
  if (!state.newest) return;
  info.step = state.newest->step;
  info.loss = state.newest->outcome.loss;
  info.gradient_norm = state.newest->outcome.gradient_norm;
  info.learning_rate = static_cast<double>(state.newest->outcome.learning_rate);
}

}  // namespace

admin::job_info coordinator_shell::info_of(const job_entry& entry) const {
  const auto& job = entry.record;
  admin::job_info info;
  info.id = job.id;
  info.why = job.why;
  info.final_hash = job.final_hash;
  info.recoveries = job.recoveries;
  if (const auto config = runtime::parse_job(job.text, job.id)) {
    info.name = config->name;
    info.steps = config->steps;
    info.priority = config->priority;
    info.min_workers = std::max<std::uint32_t>(1, config->elastic.min_workers);
    info.max_workers = config->elastic.max_workers;
    if (entry.course) info.images_per_s = entry.course->steps_per_s() * config->batch.size;
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
  for (const auto& [who, w] : workers_) info.workers += w.job == job.id ? 1 : 0;
  if (job.stage == job_stage::waiting) {
    info.why = entry.lacks.empty() ? "it is about to start" : entry.lacks;
    if (job.on_hold) info.state = admin::job_state::paused;
    if (job.on_hold) info.why = "a person has paused it: perdura resume " + job.id;
  }
  const auto* logic = entry.run ? entry.run->logic() : nullptr;
  if (logic) {
    tell_progress(info, logic->state());
    tell_state(info, *logic);
    if (info.state == admin::job_state::running && !entry.lacks.empty()) info.why = entry.lacks;
    if (info.state == admin::job_state::running && info.why.empty()) info.why = entry.run->warning();
    if (job.stopping) info.why = "it gives up its workers, with a checkpoint";
  } else {
    if (const auto state = journal_->state_of(job.id)) tell_progress(info, *state);
    if (entry.run && job.stage == job_stage::active) info.why = "a worker that loads it";
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
  if (name.empty()) {
    const auto all = running();
    return all.empty() ? jobs_.rbegin()->first : all.back();
  }
  if (jobs_.contains(name)) return name;
  std::string all;
  const std::string* newest = nullptr;
  for (const auto& [id, job] : jobs_) {
    const auto config = runtime::parse_job(job.record.text, id);
    if (config && config->name == name) newest = &id;
    all += (all.empty() ? "" : ", ") + id;
  }
  if (newest) return *newest;
  return error{errc::not_found, "there is no job \"" + name + "\"; there are " + all};
}

result<void> coordinator_shell::is_unambiguous(const std::string& name) const {
  const auto all = running();
  if (!name.empty() || all.size() <= 1) return {};
  std::string list;
  for (const auto& id : all) list += (list.empty() ? "" : ", ") + id;
  return error{errc::invalid_argument, "several jobs run: say which of " + list};
}

result<const job_run*> coordinator_shell::find_run(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  const auto& job = jobs_.at(*id);
  if (job.run && job.run->logic() && job.record.stage == job_stage::active) return job.run.get();
  static constexpr const char* stages[] = {"waits in the queue", "is starting", "has finished", "has failed",
                                           "was cancelled"};
  return error{errc::refused, "job " + *id + " " + stages[static_cast<int>(job.record.stage)]};
}

result<job_run*> coordinator_shell::find_run_to_change(const std::string& name) {
  if (auto one = is_unambiguous(name); !one) return one.failure();
  auto found = find_run(name);
  if (!found) return found.failure();
  return run_of((*found)->record().id);
}

result<admin::plan_info> coordinator_shell::plan(const std::string& name) const {
  auto run = find_run(name);
  if (!run) return run.failure();
  const auto& current = (*run)->logic()->state().current;
  admin::plan_info info{current.id, {}};
  for (const auto& m : current.members) {
    const auto w = workers_.find(m.who);
    info.members.push_back(
        {w == workers_.end() ? short_name(m.who) : w->second.hello.name, m.who, m.blocks, 0, 0});
  }
  for (const auto& holders : current.holders) {
    ++info.members[holders.front()].tiles_owned;
    for (const auto m : holders) ++info.members[m].tiles_held;
  }
  return info;
}

result<std::vector<admin::step_info>> coordinator_shell::steps(const std::string& name, step_number from,
                                                               std::uint32_t limit) {
  auto id = find_job(name);
  if (!id) return id.failure();
  std::vector<admin::step_info> some;
  const auto& all = course_of(jobs_.at(*id)).steps();
  for (auto i = from.value == 0 ? 0 : from.value - 1; i < all.size() && some.size() < limit; ++i)
    if (all[i].step.value > 0) some.push_back(all[i]);
  return some;
}

result<std::vector<admin::recovery_info>> coordinator_shell::recoveries(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  const auto& course = jobs_.at(*id).course;
  return course ? course->recoveries() : std::vector<admin::recovery_info>{};
}

result<std::vector<admin::checkpoint_info>> coordinator_shell::checkpoints(const std::string& name) const {
  auto id = find_job(name);
  if (!id) return id.failure();
  return keeper_->list(*id);
}

}  // namespace perdura::coordinator
