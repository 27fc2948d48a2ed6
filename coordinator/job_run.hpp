// One job under way: its supervisor, and what has to be done for it. Turns what its workers report into
// events for the supervisor, and the supervisor's effects into durable writes and orders, in their order.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/config.hpp"
#include "coordinator/checkpoint_keeper.hpp"
#include "coordinator/job_course.hpp"
#include "coordinator/journal.hpp"
#include "coordinator/logic/checkpoint_watch.hpp"
#include "coordinator/logic/supervisor.hpp"
#include "coordinator/logic/watchdog.hpp"

namespace perdura::coordinator {

// What a job asks of the coordinator around it.
class job_host {
 public:
  virtual ~job_host() = default;
  virtual void send(const incarnation& to, coordinator_order order) = 0;
  virtual void note(const std::string& job, const event& e) = 0;
  // Through its node agent. It is lost when that is known, or when lose() says so.
  virtual void kill_process(const incarnation& who, const std::string& why) = 0;
  virtual void lose(const incarnation& who, const std::string& why, time_point now) = 0;
  // Comes back as job_run::committed.
  virtual void commit(storage::manifest m, storage::retention_policy policy) = 0;
  // It has ended, or rests and holds nothing that could be lost: its record says which. The run is still
  // busy: let it go later.
  virtual void ended(const std::string& job) = 0;
};

struct job_run_options {
  term_number term;
  std::chrono::milliseconds lease{};
  std::chrono::milliseconds gather{};
  std::chrono::milliseconds step_timeout{};
  std::chrono::milliseconds join_timeout{};
};

class job_run {
 public:
  // What it is given must outlive it.
  job_run(job_record& record, job_config config, job_run_options options, job_course& course, journal& memory,
          checkpoint_keeper& keeper, job_host& host);

  // Goes on with what is on record. Without it waits for the first worker that has the job loaded.
  void begin(time_point now);

  // A worker has the job loaded. False: it is refused, the reason is noted.
  // `at`: where its node stands; `is_going`: the node is to go, so the worker must not join.
  bool loaded(const worker_hello& hello, const node_labels& at, bool is_going, const job_ready& r,
              time_point now);
  // One that cannot load it stays out. When nobody could, the job itself is at fault.
  void not_loaded(const std::string& name, const worker_failure& f, bool somebody_can, time_point now);
  // From a worker that has it loaded.
  void received(const worker_message& m, time_point now);
  void beat(const heartbeat& h, time_point now);
  void lost(const incarnation& who, const std::string& why, time_point now);
  void committed(const storage::manifest& m, const result<void>& done, time_point now);
  void tick(time_point now);

  void pause(time_point now);
  void resume(time_point now);
  void cancel(time_point now);
  void snapshot_now(time_point now);
  // To give all workers up, with a checkpoint; ends as a job that waits.
  void stop(time_point now);
  // It serves another job from now on.
  void dismissed(const incarnation& who);
  // As supervisor::drain.
  void drain(const std::vector<incarnation>& who, std::optional<std::chrono::milliseconds> within,
             const std::string& why, time_point now);

  const job_record& record() const { return record_; }
  const job_config& config() const { return config_; }
  // None until a worker has told the job's tiles.
  const supervisor* logic() const { return supervisor_.get(); }
  bool is_fenced(const incarnation& who) const { return supervisor_ && supervisor_->is_fenced(who); }
  era at() const { return supervisor_ ? supervisor_->state().at : era{}; }
  // Is it one of those that hold or are to hold state, by what is on record? After a restart of the
  // coordinator such a worker belongs here before it has said a word about the job.
  bool counts_on(const incarnation& who) const;
  // Can it be let go without loss? Not while a recovery may yet make it a member.
  bool can_spare(const incarnation& who) const;
  // False: it waits for workers, or for one that loads it.
  bool computes() const;
  // What is wrong with its checkpoints; empty: nothing.
  const std::string& warning() const { return saves_.warning(); }

 private:
  void make_supervisor(time_point now);
  result<restore_point> find_restore_point();
  storage::manifest empty_manifest() const;
  void on_verdict(const verdict_report& r, time_point now);
  void look_for_hung(time_point now);
  void look_after_checkpoints(time_point now);
  std::uint64_t bytes_new_in(const storage::manifest& m);
  void rest_if_possible(time_point now);
  void run_effects(time_point now);
  void run(const effect::persist& e, time_point now);
  void run(const effect::record& e, time_point now);
  void run(const effect::send& e, time_point now);
  void run(const effect::note& e, time_point now);
  void run(const effect::collect& e, time_point now);
  void run(const effect::kill& e, time_point now);
  void run(const effect::end& e, time_point now);

  job_record& record_;
  const job_config config_;
  const job_run_options options_;
  job_course& course_;
  journal& journal_;
  checkpoint_keeper& keeper_;
  job_host& host_;
  effects out_;
  bool running_effects_ = false;
  std::unique_ptr<supervisor> supervisor_;
  watchdog watchdog_;
  std::optional<time_point> stop_by_;  // without its checkpoint then
  std::optional<chunk_collector> collector_;
  std::map<std::pair<timeline_number, step_number>, verdict> verdicts_;  // recent, for manifests
  checkpoint_watch saves_;
  std::set<std::string> saved_packs_;           // that the newest checkpoint needs
  std::vector<storage::tensor_entry> tensors_;  // as the first worker named them
};

}  // namespace perdura::coordinator
