// A coordinator made up for tests: one job, two nodes, three workers, and a log of events that grows on
// demand.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <mutex>

#include "coordinator/admin/service.hpp"

namespace perdura::admin {

class fake_admin_service final : public admin_service {
 public:
  std::uint64_t events_kept_max = 1000;

  result<cluster_status> status() override {
    return cluster_status{.version = "0.1.0-test",
                          .protocol = 1,
                          .storage_format = 1,
                          .term = term_number(2),
                          .at = {term_number(2), 17},
                          .uptime_ms = 3723000,
                          .pid = 4242,
                          .port = 7400,
                          .admin_port = 7401,
                          .data_folder = "/data",
                          .log_folder = "/log",
                          .last_event = last_event()};
  }
  result<std::vector<node_info>> nodes() override {
    return std::vector<node_info>{{"node-1", "127.0.0.1", {1, 10}, 2, node_state::up, 40, 100},
                                  {"node-2", "127.0.0.1", {2, 20}, 1, node_state::suspect, 1400, 200}};
  }
  result<std::vector<worker_info>> workers() override {
    return std::vector<worker_info>{{"node-1/0",
                                     {1, 11},
                                     "node-1",
                                     worker_state::member,
                                     8,
                                     12.5,
                                     step_number(42),
                                     "exchange",
                                     0,
                                     310u << 20,
                                     101},
                                    {"node-1/1",
                                     {1, 12},
                                     "node-1",
                                     worker_state::learning,
                                     0,
                                     0,
                                     step_number(41),
                                     "copy",
                                     1,
                                     290u << 20,
                                     102},
                                    {"node-2/0",
                                     {2, 21},
                                     "node-2",
                                     worker_state::member,
                                     8,
                                     13,
                                     step_number(42),
                                     "compute",
                                     0,
                                     305u << 20,
                                     201}};
  }
  result<std::vector<job_info>> jobs() override {
    std::lock_guard lock(mutex_);
    return std::vector<job_info>{job_};
  }
  result<plan_info> plan(const std::string& job) override {
    if (auto r = check_job(job); !r) return r.failure();
    return plan_info{{{term_number(2), 17}, 3},
                     {{"node-1/0", {1, 11}, {{0, 8}}, 3, 5}, {"node-2/0", {2, 21}, {{8, 4}, {12, 4}}, 2, 5}}};
  }
  result<event_page> events(const event_query& query) override {
    std::lock_guard lock(mutex_);
    ++event_reads;
    event_page page;
    page.first_kept = events_.empty() ? next_event_ : events_.front().sequence;
    page.next = query.after;
    const auto skip = query.newest && events_.size() > query.limit ? events_.size() - query.limit : 0;
    for (auto e = events_.begin() + static_cast<std::ptrdiff_t>(skip); e != events_.end(); ++e) {
      if (page.events.size() == query.limit) break;
      if (!query.newest && e->sequence <= query.after) continue;
      page.next = e->sequence;
      if (query.job.empty() || e->job == query.job) page.events.push_back(*e);
    }
    return page;
  }
  result<std::vector<step_info>> steps(const std::string& job, step_number from,
                                       std::uint32_t limit) override {
    if (auto r = check_job(job); !r) return r.failure();
    std::vector<step_info> list;
    for (auto n = from; n.value <= 42 && list.size() < limit; n = n + 1)
      list.push_back(
          {n,
           n.value == 40 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / static_cast<double>(n.value + 1),
           210.5});
    return list;
  }
  result<std::vector<recovery_info>> recoveries(const std::string& job) override {
    if (auto r = check_job(job); !r) return r.failure();
    return std::vector<recovery_info>{{"node-3/0", "killed", step_number(20), 1700000000000, 3.2, 51.5, 4},
                                      {"node-3", "vanished", step_number(40), 1700000009000, 1502, {}, 8}};
  }
  result<std::vector<checkpoint_info>> checkpoints(const std::string& job) override {
    if (auto r = check_job(job); !r) return r.failure();
    return std::vector<checkpoint_info>{
        {"j1", step_number(20), timeline_number(0), 15u << 20, 1700000000000, checkpoint_state::committed},
        {"j1", step_number(40), timeline_number(0), 0, 1700000009000, checkpoint_state::writing}};
  }

  result<submission> submit(const std::string& text, const std::string& file) override {
    if (text.find("steps = -1") != std::string::npos)
      return submission{
          "", {file + ":3: steps: -1 is not allowed; from 1 to 1000000000", file + ":4: unknown key"}};
    submitted_text = text;
    return submission{"j1", {}};
  }
  result<receipt> pause(const std::string& job) override {
    return set(job, job_state::paused, "paused after step 42");
  }
  result<receipt> resume(const std::string& job) override { return set(job, job_state::running, "runs on"); }
  result<receipt> cancel(const std::string& job) override {
    return set(job, job_state::cancelled, "cancelled");
  }
  result<receipt> drain(const std::string& name, std::optional<std::chrono::milliseconds> within) override {
    if (name != "node-1" && name != "node-1/0")
      return error{errc::not_found, "no node or worker is named " + name};
    return receipt{name + " leaves after step 43" +
                   (within ? ", within " + std::to_string(within->count()) + " ms" : "")};
  }
  result<receipt> kill(const std::string& worker) override {
    if (worker != "node-1/0") return error{errc::not_found, "no worker is named " + worker};
    return receipt{"killed " + worker};
  }
  result<std::vector<tier_info>> tiers() override {
    return std::vector<tier_info>{
        {"cloud", "https://s3.example/bucket", "j1", step_number(40), 1, "no answer"}};
  }
  result<receipt> collect_garbage(const std::string& job, bool dry_run) override {
    return receipt{(dry_run ? "would collect " : "collects ") + job};
  }
  result<receipt> rebuild_index() override { return receipt{"rebuilt"}; }
  result<receipt> checkpoint_now(const std::string& job) override {
    if (auto r = check_job(job); !r) return r.failure();
    return receipt{"a checkpoint of step 43 is being written"};
  }
  result<receipt> shutdown() override {
    is_shut_down = true;
    if (on_shutdown) on_shutdown();
    return receipt{"the coordinator ends"};
  }
  void audit(const audit_entry& entry) override {
    std::lock_guard lock(mutex_);
    audited_.push_back(entry);
  }

  // The test's side.
  void add_event(std::string kind, std::string subject, std::string reason = "a reason") {
    std::lock_guard lock(mutex_);
    events_.push_back({next_event_++,
                       1700000000000,
                       std::move(kind),
                       "j1",
                       std::move(subject),
                       std::move(reason),
                       {{"slots", "4"}, {"lease_ms", "1500"}}});
    if (events_.size() > events_kept_max) events_.erase(events_.begin());
  }
  std::uint64_t last_event() const {
    std::lock_guard lock(mutex_);
    return next_event_ - 1;
  }
  std::vector<audit_entry> audited() const {
    std::lock_guard lock(mutex_);
    return audited_;
  }
  void set_job(const job_info& job) {
    std::lock_guard lock(mutex_);
    job_ = job;
  }
  job_info job() const {
    std::lock_guard lock(mutex_);
    return job_;
  }

  std::string submitted_text;
  std::atomic<bool> is_shut_down = false;
  std::function<void()> on_shutdown;
  std::atomic<int> event_reads = 0;

 private:
  result<void> check_job(const std::string& job) const {
    if (job.empty() || job == "j1" || job == "fashion") return {};
    return error{errc::not_found, "no job is named " + job + "; there is j1 (fashion)"};
  }
  result<receipt> set(const std::string& job, job_state s, const char* note) {
    if (auto r = check_job(job); !r) return r.failure();
    std::lock_guard lock(mutex_);
    job_.state = s;
    return receipt{note};
  }

  mutable std::mutex mutex_;
  std::vector<event_info> events_;
  std::uint64_t next_event_ = 1;
  std::vector<audit_entry> audited_;
  job_info job_{.id = "j1",
                .name = "fashion",
                .state = job_state::running,
                .step = step_number(42),
                .steps = 600,
                .loss = 0.251,
                .gradient_norm = 0.9,
                .learning_rate = 2e-3,
                .images_per_s = 384.2,
                .at = {term_number(2), 17},
                .timeline = timeline_number(0),
                .plan = {{term_number(2), 17}, 3},
                .last_checkpoint = step_number(40),
                .final_hash = "",
                .recoveries = 2,
                .why = ""};
};

}  // namespace perdura::admin
