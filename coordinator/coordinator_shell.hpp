// The coordinator around its logic: who is connected, which jobs run and on which workers, what is shown.
// What belongs to one job is in job_run.hpp. Runs on one thread, its actor's, which may wait for the disk.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/config.hpp"
#include "coordinator/admin/service.hpp"
#include "coordinator/checkpoint_keeper.hpp"
#include "coordinator/job_run.hpp"
#include "coordinator/journal.hpp"
#include "coordinator/logic/lease_table.hpp"
#include "coordinator/logic/scheduler.hpp"
#include "storage/s3/tier_keeper.hpp"

namespace perdura::coordinator {

struct shell_options {
  cluster_config config;
  std::string store;  // folder of the checkpoint store
  std::string log_folder;
  std::string data_folder;
  term_number term;
  std::function<std::vector<storage::tier_status>()> tiers = [] {
    return std::vector<storage::tier_status>();
  };
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

class coordinator_shell : private job_host {
 public:
  coordinator_shell(shell_options options, std::unique_ptr<journal> memory,
                    std::unique_ptr<checkpoint_keeper> keeper, surroundings around);
  ~coordinator_shell() override;

  // The ports, where the operating system chose them.
  void listens_on(std::uint16_t port, std::uint16_t admin_port);
  // Reads the jobs there were, and goes on with those that were active.
  result<void> begin(time_point now);

  // From workers and nodes
  result<welcome> greet(const worker_hello& hello, time_point now);
  result<welcome> greet(const node_hello& hello, time_point now);
  void report(const worker_report& r, time_point now);
  void beat(const heartbeat& h, time_point now);
  void beat(const node_heartbeat& h, time_point now);
  void child_ended(const child_exit& e, time_point now);
  void notice(const node_notice& n, time_point now);
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
  admin::submission submit(const std::string& text, const std::string& file);
  result<admin::receipt> pause(const std::string& job, time_point now);
  result<admin::receipt> resume(const std::string& job, time_point now);
  result<admin::receipt> cancel(const std::string& job, time_point now);
  // `within`: its machine is gone then.
  result<admin::receipt> drain(const std::string& name, std::optional<std::chrono::milliseconds> within,
                               time_point now);
  result<admin::receipt> kill(const std::string& worker);
  result<admin::receipt> checkpoint_now(const std::string& job, time_point now);
  result<admin::receipt> collect_garbage(const std::string& job, bool dry_run);
  admin::receipt rebuild_index();
  std::vector<admin::tier_info> tiers() const;
  void tier_said(const storage::tier_event& e);
  admin::receipt shut_down();
  void audit(const admin::audit_entry& entry);

 private:
  struct worker_view {
    worker_hello hello;
    heartbeat last;
    bool connected = true;
    std::string job;        // that it serves; empty: none
    bool is_ready = false;  // it has that job loaded
    bool leaving = false;   // it hands over what it holds for that job, and is free then
  };
  struct node_view {
    node_hello hello;
    time_point heard;
    bool connected = true;
    bool told_to_stop = false;
  };
  struct job_entry {
    job_record record;
    job_config config;  // of its text, while it has not ended
    std::string lacks;  // which workers, if any
    std::optional<time_point> lack_noted;
    std::vector<incarnation> unfit;      // workers that cannot serve it
    std::unique_ptr<job_course> course;  // once somebody asks for it
    std::unique_ptr<job_run> run;        // while it is active
    bool peers_wait = false;             // its workers are to be told of each other when all are back
  };

  // ---- for the jobs that run
  void send(const incarnation& to, coordinator_order order) override;
  void note(const std::string& job, const event& e) override;
  void kill_process(const incarnation& who, const std::string& why) override;
  void lose(const incarnation& who, const std::string& why, time_point now) override;
  void commit(storage::manifest m, storage::retention_policy policy) override;
  void ended(const std::string& job) override;

  // ---- jobs and their workers
  void start_run(job_entry& job, time_point now);
  void clear_away(const std::string& job);
  void assign(worker_view& w, const std::string& job);
  void dismiss(worker_view& w);
  void tell_peers(const std::string& job);
  job_run* run_of(const std::string& job);
  const job_run* run_of(const std::string& job) const;
  job_run* run_that_counts_on(const incarnation& who);
  const job_run* run_that_fenced(const incarnation& who) const;
  std::vector<std::string> running() const;
  job_course& course_of(job_entry& job);
  void on_job_ready(worker_view& w, const job_ready& r, time_point now);
  void on_worker_failure(worker_view& w, const worker_failure& f, time_point now);

  // ---- who serves which job (coordinator_placement.cpp)
  void place_soon();
  void place(time_point now);
  std::vector<job_demand> demands() const;
  std::vector<worker_supply> supplies() const;
  void carry_out(const schedule& s, time_point now);
  void take(const schedule::move& m, time_point now);
  void note_lacks(const schedule& s, time_point now);
  void refuse(worker_view& w);
  void free_those_that_let_go();

  // ---- machines that go (coordinator_drains.cpp)
  bool is_going(const worker_view& w) const;
  const drain_entry* drain_of(const incarnation& who) const;
  bool record_drain(const incarnation& who, const std::string& name,
                    std::optional<std::chrono::milliseconds> within, const std::string& why);
  bool may_hold_something(const incarnation& node) const;
  void hand_over(const std::vector<incarnation>& workers, std::optional<std::chrono::milliseconds> within,
                 const std::string& why, time_point now);
  std::string left_alone(const std::vector<incarnation>& leaving) const;
  void see_off();

  // ---- what people see and name
  result<std::string> find_job(const std::string& name) const;
  result<const job_run*> find_run(const std::string& name) const;
  // A write does not guess which of several jobs is meant.
  result<void> is_unambiguous(const std::string& name) const;
  result<job_run*> find_run_to_change(const std::string& name);
  result<bool> hold(const std::string& name, bool on_hold);
  admin::job_info info_of(const job_entry& job) const;
  admin::worker_info info_of(const incarnation& who, const worker_view& w) const;
  void tell_drain(const incarnation& who, admin::departure& into) const;
  admin::worker_state state_of(const incarnation& who, const worker_view& w) const;

  shell_options options_;
  const std::unique_ptr<journal> journal_;
  const surroundings around_;
  const time_point started_ = std::chrono::steady_clock::now();

  std::map<incarnation, worker_view> workers_;
  std::map<incarnation, node_view> nodes_;
  lease_table leases_;  // of workers
  std::unique_ptr<checkpoint_keeper> keeper_;
  std::map<std::string, job_entry> jobs_;  // by id, which sorts by age
  std::vector<drain_entry> drains_;        // the newest last, bounded
  scheduler scheduler_;
  bool placing_ = false;  // soon
  std::optional<time_point> placed_at_;
};

}  // namespace perdura::coordinator
