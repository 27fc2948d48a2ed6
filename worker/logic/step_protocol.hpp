// The step protocol as one worker runs it: a state machine without I/O (docs/protocol.md has the rules,
// numbered as here). Events come in through the functions below; what is to be done is appended to the
// effects given to the constructor and executed by the shell, in order.
//
// step_protocol.cpp: a step, from its slots to its verdict. settle.cpp: promise, inventory, recovery.
// proposals.cpp: learners, feeds, switching plans, leaving.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/rules.hpp"
#include "worker/logic/effects.hpp"

namespace perdura::worker {

struct protocol_limits {
  std::size_t held_frames_max = 1U << 16;  // of a newer era, or of a plan not yet known
  std::size_t backlog_steps_max = 1024;    // gradients that a learner keeps for one tile
};

// Of a block computed here: its gradient cut by tiles.
struct computed_block {
  double loss{};
  std::vector<blob> tiles;
};

class step_protocol {
 public:
  step_protocol(incarnation self, const job_config& job, std::uint32_t tile_count, effects& out,
                broken_rules broken = {}, protocol_limits limits = {});

  // ---- events from the coordinator. Orders of lower terms than the highest seen are refused.
  void order(const order_envelope& o);
  // The connection is (again) there and has been greeted: repeats what may have been lost with the last one.
  void coordinator_connected();
  // ---- from the links
  void received(frame f);
  void link_up(const incarnation& peer);
  void link_down(const incarnation& peer, const std::string& why);
  // ---- from the lane
  void block_computed(step_number step, const block& slots, computed_block result);
  void tile_reduced(step_number step, tile_id tile, reduced_frame result);
  void tile_applied(step_number step, tile_id tile);
  void tile_copied(tile_id tile, step_number version, blob state);
  void parameters_read(tile_id tile, step_number version, blob values);
  void tile_installed(tile_id tile, step_number version);
  void restored(step_number step);

  // ---- what it looks like from outside
  const incarnation& self() const { return self_; }
  worker_hello greeting() const;  // the protocol's part of it
  worker_phase where() const;
  step_number step() const { return step_; }
  const std::optional<verdict>& newest() const { return newest_; }
  const plan* current() const { return plan_ ? &*plan_ : nullptr; }
  timeline_number timeline() const { return timeline_; }
  era promised() const { return era_; }
  // Is the tile here, complete and at this version?
  bool holds(tile_id tile) const { return tiles_[tile.value].held; }
  step_number version(tile_id tile) const { return tiles_[tile.value].applied; }
  std::uint64_t frames_dropped() const { return frames_dropped_; }

 private:
  enum class mode : std::uint8_t { idle, promised, adopted, running, leaving };

  struct tile_state {
    bool held = false;        // complete here: as owner or replica, or kept until the next verdict
    bool moving_off = false;  // held under the last plan, not under this one
    bool learning = false;
    bool copied = false;     // a learner's copy has come
    bool installed = false;  // and is in place
    incarnation feeder;      // who feeds the learner
    step_number version;     // last step applied or being applied
    step_number applied;     // last step applied
    step_number parameters;  // version of the parameters that are here
    std::map<step_number, reduced_frame> gradients;

    // An apply under way is finished on the lane before anything that comes after it.
    void keep_parameters_only() {
      const auto kept = version;
      *this = {};
      parameters = kept;
    }
  };

  struct feed {
    bool copied = false;
    step_number version;
    std::vector<frame> queue;  // gradients that follow the copy
  };

  // One step's sums: of the blocks computed here, and of all blocks on the tiles owned here.
  struct step_sums {
    std::map<block, computed_block> own;
    std::vector<std::map<block, partial>> received;
    std::set<tile_id> reducing;
  };

  bool broken(rule r) const { return broken_.has(r); }
  bool is_member() const { return plan_ && plan_->has_member(self_); }
  bool is_running() const { return mode_ == mode::running || mode_ == mode::leaving; }

  // step_protocol.cpp
  void accept(const frame& f);
  void on_partial(const frame& f, const partial_frame& p);
  void on_reduced(const frame& f, const reduced_frame& r);
  void on_parameters(const frame& f, const parameters_frame& p);
  void on_vote(const frame& f, const vote_frame& v);
  void hold(frame f);
  void release_held();
  frame make_frame(step_number step, frame_body body) const;
  void send(const incarnation& to, step_number step, frame_body body);
  void send_to_members(step_number step, const frame_body& body);
  void maybe_compute();
  void distribute(const block& slots);
  void maybe_reduce(tile_id tile);
  void spread_gradient(tile_id tile, const reduced_frame& g);
  void maybe_vote();
  plan_id prepared_for() const;
  void try_conclude();
  step_outcome outcome_of(const std::vector<vote_part>& parts) const;
  std::vector<vote_part> collected_parts() const;
  void observe(const verdict& v);
  void observe_from_outside(const verdict& v);
  void catch_up(const verdict& v);
  void remember(const verdict& v);
  void apply_ready(tile_id tile);
  void spread_parameters(tile_id tile);
  void maybe_finish();
  void maybe_snapshot(tile_id tile);
  bool snapshot_due(const verdict& v) const;
  step_sums& sums() { return sums_of(step_); }
  step_sums& sums_of(step_number step);
  void use_plan(plan p);

  // settle.cpp
  void on_fence(const fence_order& f);
  void on_recover(const recover_order& r);
  void on_start(const start_order& s);
  void report_inventory();
  void adopt_state(const recover_order& r);
  void adopt_sums(const recover_order& r);
  void maybe_adopted();
  void report_missing_links();
  void resend_step();
  void forget_everything();
  void complain(const incarnation& about, const std::string& why);
  bool is_relevant(const incarnation& peer) const;

  // proposals.cpp
  void on_proposal(const proposal_order& p);
  void accept_proposal(const proposal_order& p);
  void start_feeds();
  void start_feed(const incarnation& learner, tile_id tile);
  void feed_gradient(tile_id tile, const frame& f);
  void stop_learning(tile_state& t);
  bool feed_is_held(const incarnation& feeder, tile_id tile) const;
  void on_tile_copy(const frame& f, const tile_copy_frame& c);
  void on_ready(const frame& f, const ready_note& r);
  void on_verdict_ack(const frame& f, const verdict_ack& a);
  void maybe_ready();
  std::vector<incarnation> learners() const;
  void switch_plan(const verdict& v);
  void let_go(const verdict& v);

  const incarnation self_;
  const job_config job_;
  const std::uint32_t tile_count_;
  effects& out_;
  const broken_rules broken_;
  const protocol_limits limits_;

  mode mode_ = mode::idle;
  term_number term_;
  era era_;  // promised: older ones are ignored
  timeline_number timeline_;
  std::optional<plan> plan_;
  std::vector<block> partition_;  // all blocks of plan_, in the order of slots
  step_number step_{1};           // the one being worked on
  std::optional<verdict> newest_;
  std::map<step_number, verdict> verdicts_;  // newest and, while learning, those not yet applied
  step_outcome settled_outcome_;             // of step_ - 1
  std::optional<verdict> expected_;          // the step is redone: its outcome must be this one
  std::vector<tile_state> tiles_;
  std::map<step_number, step_sums> sums_;
  std::map<step_number, std::set<block>> computing_;
  std::set<tile_id> reduced_elsewhere_;  // of the step settled on: their owners hold g
  std::set<block> orphans_;
  std::map<step_number, std::map<incarnation, vote_frame>> votes_;
  std::optional<step_number> voted_;
  std::optional<recover_order> recovery_;
  std::vector<frame> held_;
  bool restoring_ = false;
  bool adopted_reported_ = false;
  bool finished_ = false;

  std::optional<proposal_order> proposal_;
  std::optional<proposal_order> queued_proposal_;   // its base is proposal_, not yet effective here
  std::map<plan_id, std::set<incarnation>> ready_;  // learners that said so
  bool ready_sent_ = false;
  std::map<std::pair<incarnation, tile_id>, feed> feeds_;
  std::vector<incarnation> leavers_;  // of the plan before this one
  std::set<incarnation> leavers_acked_;
  std::optional<step_number> switched_at_;  // the verdict that named plan_
  std::optional<plan_id> released_;         // said until acknowledged
  std::optional<step_number> snapshot_step_;
  std::optional<plan> snapshot_plan_;  // whose owners write it

  std::set<incarnation> linked_;
  std::set<incarnation> complained_;
  std::uint64_t frames_dropped_ = 0;
};

}  // namespace perdura::worker
