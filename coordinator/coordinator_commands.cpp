// What people ask of the coordinator.
#include <algorithm>

#include "actors/runtime/config_file.hpp"
#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t jobs_max = 10'000;

std::string names_of(const std::vector<storage::checkpoint_key>& keys) {
  std::string names;
  for (const auto& key : keys)
    names += (names.empty() ? "" : ", ") + to_string(key.step) + "." + to_string(key.timeline);
  return names.empty() ? "no checkpoint" : "steps " + names;
}

std::string collected(storage::checkpoint_index& index, const std::string& job,
                      const storage::retention_policy& policy, const std::vector<incarnation>& live,
                      bool dry_run) {
  if (dry_run) {
    const auto keys = index.would_drop(job, policy);
    return keys ? names_of(*keys) + " would be dropped" : keys.failure().message;
  }
  const auto report = index.retain(job, policy, live);
  if (!report) return report.failure().message;
  return names_of(report->dropped) + " dropped, " + std::to_string(report->packs_removed.size()) +
         " packs of " + std::to_string(report->bytes_freed) + " bytes removed" +
         (live.empty() ? "" : "; what snapshots under way may build on goes after the next checkpoint");
}

}  // namespace

admin::submission coordinator_shell::submit(const std::string& text, const std::string& file) {
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
  auto& entry = jobs_[s.job];
  entry.record = std::move(job);
  entry.config = *config;
  place_soon();
  return s;
}

// Writes down what a person wants. True: that is all, the job does not run.
result<bool> coordinator_shell::hold(const std::string& name, bool on_hold) {
  if (auto one = is_unambiguous(name); !one) return one.failure();
  auto id = find_job(name);
  if (!id) return id.failure();
  auto& record = jobs_.at(*id).record;
  if (record.stage != job_stage::waiting && record.stage != job_stage::active) return false;
  record.on_hold = on_hold;
  journal_->put(record);
  place_soon();
  return record.stage == job_stage::waiting || record.stopping;
}

result<admin::receipt> coordinator_shell::pause(const std::string& job, time_point now) {
  auto waits = hold(job, true);
  if (!waits) return waits.failure();
  if (*waits) return admin::receipt{"it will not start before it is resumed"};
  auto run = find_run_to_change(job);
  if (!run) return run.failure();
  (*run)->pause(now);
  return admin::receipt{"it pauses after the step under way"};
}

result<admin::receipt> coordinator_shell::resume(const std::string& job, time_point now) {
  auto waits = hold(job, false);
  if (!waits) return waits.failure();
  if (*waits) return admin::receipt{"it starts when there are workers for it"};
  auto run = find_run_to_change(job);
  if (!run) return run.failure();
  (*run)->resume(now);
  return admin::receipt{"it goes on"};
}

result<admin::receipt> coordinator_shell::cancel(const std::string& name, time_point now) {
  if (auto one = is_unambiguous(name); !one) return one.failure();
  auto id = find_job(name);
  if (!id) return id.failure();
  auto& job = jobs_.at(*id);
  if (job.record.stage == job_stage::waiting) {
    job.record.stage = job_stage::cancelled;
    job.record.why = "cancelled before it started";
    journal_->put(job.record);
    return admin::receipt{"it will not start"};
  }
  if (job.record.stage == job_stage::active && job.run && !job.run->logic()) {
    job.run->cancel(now);
    return admin::receipt{"it will not start"};
  }
  auto run = find_run_to_change(name);
  if (!run) return run.failure();
  (*run)->cancel(now);
  return admin::receipt{"it is cancelled; its checkpoints stay"};
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
  auto run = find_run_to_change(job);
  if (!run) return run.failure();
  const auto& logic = *(*run)->logic();
  if (logic.where() != stage::running) return error{errc::unavailable, "the job does not run right now"};
  if (logic.state().current.action == plan_action::pause)
    return error{errc::refused, "the job is paused; no step follows that could be saved"};
  (*run)->snapshot_now(now);
  return admin::receipt{"the next step but one is saved"};
}

result<admin::receipt> coordinator_shell::collect_garbage(const std::string& name, bool dry_run) {
  const auto id = find_job(name);
  if (!id) return id.failure();
  const auto& c = jobs_.at(*id).config.checkpoint;
  const storage::retention_policy policy{c.keep, c.keep_every_hours};
  std::vector<incarnation> live;
  for (const auto& [who, w] : workers_) live.push_back(who);
  keeper_->tend([job = *id, policy, live,
                 dry_run](auto& index) { return collected(index, job, policy, live, dry_run); },
                [this, job = *id](const std::string& outcome) {
                  around_.post([job, outcome](coordinator_shell& c) {
                    c.note(job, {event_kind::store_tended, job, outcome, {}});
                  });
                });
  return admin::receipt{dry_run ? "what would go is looked for" : "what is not kept goes"};
}

admin::receipt coordinator_shell::rebuild_index() {
  keeper_->tend(
      [](auto& index) -> std::string {
        const auto rebuilt = index.rebuild_index();
        return rebuilt ? "the index is rebuilt from the manifests" : rebuilt.failure().message;
      },
      [this](const std::string& outcome) {
        around_.post([outcome](coordinator_shell& c) {
          c.note("", {event_kind::store_tended, "index", outcome, {}});
        });
      });
  return {"the index is made anew from manifests and tombstones"};
}

std::vector<admin::tier_info> coordinator_shell::tiers() const {
  std::vector<admin::tier_info> all;
  for (const auto& t : options_.tiers()) {
    admin::tier_info info{t.tier, t.where, {}, {}, static_cast<std::uint32_t>(t.missing.size()), t.failure};
    if (t.newest.empty()) all.push_back(info);
    for (const auto& [job, key] : t.newest) {
      info.job = job;
      info.step = key.step;
      all.push_back(info);
    }
  }
  return all;
}

void coordinator_shell::tier_said(const storage::tier_event& e) {
  using kind = storage::tier_event::kind;
  if (e.what == kind::brought) return;
  note(e.key.job, {e.what == kind::failed ? event_kind::checkpoint_alarm : event_kind::store_tended,
                   e.tier,
                   e.message,
                   {{"tier", e.tier}, {"step", to_string(e.key.step)}}});
}

admin::receipt coordinator_shell::shut_down() {
  for (const auto& [who, n] : nodes_)
    if (n.connected) around_.send_node({options_.term, who, stop_node{"the cluster is shut down"}});
  around_.end();
  return {
      "all nodes stop; a job that runs goes on from its last checkpoint when the cluster is started again"};
}

void coordinator_shell::audit(const admin::audit_entry& entry) {
  const auto job = jobs_.contains(entry.subject) ? entry.subject : "";
  note(job, {event_kind::audit,
             entry.subject,
             entry.who + " asked to " + entry.action + ": " + entry.outcome,
             {{"who", entry.who}, {"action", entry.action}}});
}

}  // namespace perdura::coordinator
