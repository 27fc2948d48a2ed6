// The coordinator around its logic: who is connected, which job runs, what is written down, what is shown.
// Turns what arrives into events for the supervisor and its effects into durable writes and orders, in their
// order. Runs on one thread, its actor's, which may wait for the disk.
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "coordinator/admin/service.hpp"
#include "coordinator/checkpoint_keeper.hpp"
#include "coordinator/journal.hpp"
#include "coordinator/logic/supervisor.hpp"
#include "coordinator/logic/watchdog.hpp"

namespace perdura::coordinator {

struct shell_options {
  cluster_config config;
  std::string store;  // folder of the checkpoint store
  std::string log_folder;
  std::string data_folder;
  term_number term;
};

struct surroundings {
  std::function<void(std::function<void(class coordinator_shell&)>)> post;  // from any thread
  std::function<void(const order_envelope&)> send;                          // to a worker, if it is connected
  std::function<void(const node_order&)> send_node;
  // Does something answer on the worker's link port? Calls back through post.
  std::function<void(const incarnation&, const endpoint&)> probe;
  std::function<void()> events_grew;
  std::function<void()> end;  // all nodes have been told to stop
};

class coordinator_shell {
 public:
  coordinator_shell(shell_options options, std::unique_ptr<journal> memory,
                    std::unique_ptr<checkpoint_keeper> keeper, surroundings around);

  // The ports, where the operating system chose them.
  void listens_on(std::uint16_t port, std::uint16_t admin_port);
  // Reads the jobs there were, and goes on with the one that was active.
  result<void> begin(time_point now);

  // From workers and nodes
  result<welcome> greet(const worker_hello& hello, time_point now);
  result<welcome> greet(const node_hello& hello, time_point now);
  void report(const worker_report& r, time_point now);
  void beat(const heartbeat& h, time_point now);
  void beat(const node_heartbeat& h, time_point now);
  void child_ended(const child_exit& e, time_point now);
  void worker_disconnected(const incarnation& who);
  void node_disconnected(const incarnation& who, time_point now);
  void probed(const incarnation& who, bool answers, time_point now);
  void tick(time_point now);

  // From people; see admin::admin_api
  admin::cluster_status status() const;
  std::vector<admin::node_info> nodes(time_point now) const;
  std::vector<admin::worker_info> workers() const;
  std::vector<admin::job_info> jobs() const;
  result<admin::plan_info> plan(const std::string& job) const;
  result<admin::event_page> events(const admin::event_query& q) const { return journal_->read(q); }
  result<std::vector<admin::step_info>> steps(const std::string& job, step_number from, std::uint32_t limit);
  result<std::vector<admin::recovery_info>> recoveries(const std::string& job) const;
  result<std::vector<admin::checkpoint_info>> checkpoints(const std::string& job) const;
  admin::submission submit(const std::string& text, const std::string& file, time_point now);
  result<admin::receipt> pause(const std::string& job, time_point now);
  result<admin::receipt> resume(const std::string& job, time_point now);
  result<admin::receipt> cancel(const std::string& job, time_point now);
  result<admin::receipt> drain(const std::string& name, time_point now);
  result<admin::receipt> kill(const std::string& worker);
  result<admin::receipt> checkpoint_now(const std::string& job, time_point now);
  admin::receipt shut_down();
  void audit(const admin::audit_entry& entry);

 private:
  struct worker_view {
    worker_hello hello;
    heartbeat last;
    time_point heard;
    bool connected = true;
    bool is_ready = false;  // of the active job
  };
  struct node_view {
    node_hello hello;
    time_point heard;
    bool connected = true;
    bool draining = false;
  };
  struct recovery_watch {
    admin::recovery_info info;
    time_point sign;
    bool decided = false;
  };
  // A job's course.
  struct history {
    std::vector<admin::step_info> steps;  // step n at n - 1; a step not (yet) heard of is 0
    timeline_number timeline;             // of the last one heard
    std::optional<time_point> last_step_at;
    std::vector<admin::recovery_info> recoveries;
  };

  void activate_next(time_point now);
  void make_supervisor(time_point now);
  result<restore_point> find_restore_point();
  void on_job_ready(const job_ready& r, time_point now);
  void on_verdict(const verdict_report& r, time_point now);
  history& history_of(const std::string& job);
  void run_effects(time_point now);
  void run(const effect::persist& e, time_point now);
  void run(const effect::record& e, time_point now);
  void run(const effect::send& e, time_point now);
  void run(const effect::note& e, time_point now);
  void run(const effect::collect& e, time_point now);
  void run(const effect::kill& e, time_point now);
  void run(const effect::end& e, time_point now);
  void watch_recovery(const event& e, time_point now);
  void committed(const storage::manifest& m, const result<void>& done, time_point now);
  void cannot_load(const worker_view& w, const worker_failure& f, time_point now);
  void look_for_hung(time_point now);
  void lose(const incarnation& who, const std::string& why, time_point now);
  void kill_process(const incarnation& who, const std::string& why);
  void tell_peers();
  void send(const incarnation& to, coordinator_order order);
  void note(event e);
  job_record* active() { return active_ ? &jobs_.at(*active_) : nullptr; }
  const job_record* active() const { return active_ ? &jobs_.at(*active_) : nullptr; }
  result<std::string> find_job(const std::string& name) const;
  result<void> needs_active(const std::string& job) const;
  admin::job_info info_of(const job_record& job) const;
  admin::worker_state state_of(const incarnation& who, const worker_view& w) const;

  shell_options options_;
  const std::unique_ptr<journal> journal_;
  const surroundings around_;
  const time_point started_ = std::chrono::steady_clock::now();

  std::map<incarnation, worker_view> workers_;
  std::map<incarnation, node_view> nodes_;
  std::map<std::string, job_record> jobs_;  // by id, which sorts by age
  std::map<std::string, history> histories_;
  std::optional<std::string> active_;
  job_config config_;  // of the active job
  effects out_;
  std::unique_ptr<supervisor> supervisor_;
  std::unique_ptr<chunk_collector> collector_;
  std::map<std::pair<timeline_number, step_number>, verdict> verdicts_;  // recent, for manifests
  std::optional<recovery_watch> recovering_;
  std::unique_ptr<watchdog> watchdog_;  // of the active job
  std::optional<time_point> last_tick_;
  bool running_effects_ = false;
  std::unique_ptr<checkpoint_keeper> keeper_;  // last: its thread posts here
};

}  // namespace perdura::coordinator
