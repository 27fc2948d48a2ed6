// A worker around its protocol: turns effects into work on the lane, frames on the links and reports to the
// coordinator, and what comes back into events. Runs on one thread (its actor's); `post` brings others there.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "actors/base/control.hpp"
#include "worker/bulk/frame_links.hpp"
#include "worker/fault.hpp"
#include "worker/lane.hpp"
#include "worker/logic/step_protocol.hpp"
#include "worker/pass.hpp"
#include "worker/snapshots.hpp"
#include "worker/trainer/trainer.hpp"

namespace perdura::worker {

struct shell_options {
  incarnation self;
  incarnation node;
  std::string name;
  std::string trace_folder;  // empty: none; else each applied step is written to a file of this life
  std::string spans_folder;  // empty: none; else what it does when is (spans.hpp)
  fault injected;
};

// Read by the heartbeat, on a thread of its own.
struct progress {
  std::atomic<std::uint64_t> step{0};
  std::atomic<worker_phase> phase{worker_phase::idle};
  std::atomic<std::uint64_t> slots_done{0};
  std::atomic<std::int64_t> slot_nanoseconds{0};
};

class worker_shell {
 public:
  struct surroundings {
    std::function<void(std::function<void(worker_shell&)>)> post;  // from any thread
    std::function<void(std::chrono::nanoseconds, std::function<void(worker_shell&)>)> post_later;
    std::function<void(worker_message)> tell;          // the coordinator; lost while there is none
    std::function<void(const std::string& why)> stop;  // ends the process
    frame_links::maker make_links;
  };

  static result<std::unique_ptr<worker_shell>> make(shell_options options, surroundings around);
  ~worker_shell();

  worker_hello greeting() const;
  void order(const order_envelope& o);
  // The coordinator has accepted the hello.
  void welcomed();
  const progress& how_far() const { return progress_; }

 private:
  worker_shell(shell_options options, surroundings around);

  void on_job(const job_order& o);
  void job_loaded(const std::string& id, job_config config, std::unique_ptr<trainer> made,
                  std::uint64_t numeric_class);
  void dismiss();
  void run_effects();
  void run(effect::send& e);
  void run(effect::report& e);
  void run(effect::compute& e);
  void run(effect::keep_only& e);
  void run(effect::reduce& e);
  void run(effect::apply& e);
  void run(effect::copy& e);
  void run(effect::read_parameters& e);
  void run(effect::install& e);
  void run(effect::let_go& e);
  void run(effect::install_parameters& e);
  void run(effect::restore& e);
  void run(effect::snapshot& e);
  void run(effect::finish& e);
  void run(effect::stop& e);
  // What work on the lane keeps alive and may use there.
  struct lane_things {
    std::shared_ptr<trainer> numbers;
    std::shared_ptr<resident_parameters> resident;
    std::shared_ptr<spans> trace;
    sharding_level level;
  };
  lane_things on_lane_now() const;
  void compute(const effect::compute& e, std::uint64_t attempt, const lane_things& made,
               const std::atomic<bool>& stopped);
  // The block is still being computed, and by this attempt.
  bool is_wanted(step_number step, const block& slots, std::uint64_t attempt) const;
  std::chrono::nanoseconds pause_before_copy(tile_id tile);
  void after_event();
  void trace_applied();
  // Does `work` on the lane and hands its result to `event` back here, unless the job has changed meanwhile.
  template <class Work, class Event>
  void on_lane(Work work, Event event);

  const shell_options options_;
  const surroundings around_;
  fault fault_;
  progress progress_;
  term_number term_;
  std::map<incarnation, std::uint64_t> linked_;  // peers and the session of their link
  std::unique_ptr<frame_links> links_;

  // Of the job at hand. The number tells results of an older job from those of this one.
  std::uint64_t job_number_ = 0;
  std::optional<job_order> job_;
  job_config config_;
  std::shared_ptr<trainer> trainer_;
  std::shared_ptr<resident_parameters> resident_;  // the lane's
  std::shared_ptr<spans> spans_;
  step_number computing_step_;
  std::map<block, std::uint64_t> attempts_;  // at the blocks being computed; one given up hands nothing over
  std::uint64_t attempt_ = 0;
  std::chrono::steady_clock::time_point copies_free_at_;  // when the next copy may be made
  std::uint64_t numeric_class_ = 0;
  effects out_;
  std::unique_ptr<step_protocol> logic_;
  std::unique_ptr<snapshots> snapshots_;
  std::vector<chunk_report> chunks_;  // of the newest snapshot written
  std::pair<timeline_number, step_number> traced_;
  lane lane_;  // last: its tasks use what is above
};

}  // namespace perdura::worker
