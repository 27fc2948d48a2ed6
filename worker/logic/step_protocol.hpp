// The step protocol as one worker runs it: a state machine without I/O (docs/protocol.md has the rules,
// numbered as here). Events come in through the functions below; what is to be done is appended to the
// effects given to the constructor and executed by the shell, in order.
//
// step_protocol.cpp: a step, from its slots to its verdict. settle.cpp: promise, inventory, recovery.
// parameters.cpp: gathering those of tiles held elsewhere. proposals.cpp: learners, feeds, switching plans,
// leaving.
#pragma once

#include <limits>
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
  std::size_t copies_at_once = 2;          // of tiles on their way from one feeder
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
  // Where gradients are sharded a block's tiles come one by one, then block_computed without any.
  void tile_computed(step_number step, const block& slots, tile_id tile, partial result);
  void block_computed(step_number step, const block& slots, computed_block result);
  // Where parameters are sharded: a block of `step` that is being computed needs the tile's. Answered by
  // effect::install_parameters, unless the step is over.
  void parameters_wanted(step_number step, tile_id tile);
  void tile_reduced(step_number step, tile_id tile, reduced_frame result);
  void tile_applied(step_number step, tile_id tile);
  void tile_copied(tile_id tile, step_number version, std::uint64_t hash, blob state);
  void parameters_read(tile_id tile, step_number version, blob values);
  void tile_installed(tile_id tile, step_number version);
  void tile_damaged(tile_id tile, step_number version);
  void restored(era at);

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
  // Is its state in this worker's memory, whether it counts as a holder or not?
  bool keeps(tile_id tile) const {
    const auto& t = tiles_[tile.value];
    return t.held || t.kept || t.copied;
  }
  step_number version(tile_id tile) const { return tiles_[tile.value].applied; }
  std::uint64_t frames_dropped() const { return frames_dropped_; }

 private:
  static constexpr step_number no_version{std::numeric_limits<std::uint64_t>::max()};

  enum class mode : std::uint8_t { idle, promised, adopted, running, leaving };

  struct tile_state {
    bool held = false;        // complete here: as owner or replica, or kept until the next verdict
    bool moving_off = false;  // held under the last plan, not under this one
    bool learning = false;
    bool asked = false;      // the feeder has been asked for the learner's copy
    bool copied = false;     // which has come
    bool installed = false;  // and is in place
    bool kept = false;       // a complete copy whose feed broke off: it may be resumed
    incarnation feeder;      // who feeds the learner
    step_number version;     // last step applied or being applied
    step_number applied;     // last step applied
    step_number parameters;  // version of the parameters that are here
    std::map<step_number, reduced_frame> gradients;

    bool is_whole_copy() const { return kept || (learning && installed && applied == version); }
    // When its state goes. What is under way is finished on the lane before anything that comes after it.
    step_number parameters_left() const {
      if (held || kept || installed) return version;
      return copied ? no_version : parameters;
    }
    void keep_parameters_only() {
      const auto left = parameters_left();
      *this = {};
      parameters = left;
    }
  };

  struct feed {
    bool copied = false;
    step_number version;
    std::vector<frame> queue;  // gradients that follow the copy
  };

  // A block whose tiles are handed over as they come, and not kept.
  struct streamed_block {
    std::map<tile_id, partial> waiting;  // for the plan's start
    bool is_sent = false;                // in part at least
    bool is_done = false;
  };

  // One step's sums: of the blocks computed here, and of all blocks on the tiles owned here.
  struct step_sums {
    std::map<block, computed_block> own;
    std::map<block, streamed_block> streamed;
    std::vector<std::map<block, partial>> received;
    std::set<tile_id> reducing;
  };

  bool broken(rule r) const { return broken_.has(r); }
  bool is_member() const { return plan_ && plan_->has_member(self_); }
  bool streams() const { return level_ >= sharding_level::gradients; }
  bool gathers() const { return level_ == sharding_level::parameters; }
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
  void hand_over(tile_id tile, const partial& part);
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
  void on_request(const frame& f, const parameters_request& r);
  void answer_requests(tile_id tile);
  void let_go_of(tile_id tile);
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
  void abandon_streamed();
  void set_copies_aside();
  void enter_timeline(timeline_number t);
  void complain(const incarnation& about, const std::string& why);
  bool is_relevant(const incarnation& peer) const;

  // proposals.cpp
  void on_proposal(const proposal_order& p);
  void accept_proposal(const proposal_order& p);
  void ask_for_copies();
  void on_feed_note(const frame& f, const feed_note& n);
  void start_feeds();
  void start_feed(const incarnation& learner, tile_id tile, std::optional<step_number> have);
  void begin_feed(const incarnation& learner, tile_id tile, feed& f, step_number version, std::uint64_t hash,
                  const blob& state);
  void feed_gradient(tile_id tile, const frame& f);
  static void stop_learning(tile_state& t);
  void on_tile_copy(const frame& f, const tile_copy_frame& c);
  void on_ready(const frame& f, const ready_note& r);
  void on_verdict_ack(const frame& f, const verdict_ack& a);
  void maybe_ready();
  std::vector<incarnation> learners() const;
  void switch_plan(const verdict& v);
  void let_go(const verdict& v);

  const incarnation self_;
  const job_config job_;
  const sharding_level level_;
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
  std::set<tile_id> wanted_parameters_;  // by the blocks being computed, of step_ - 1
  std::map<tile_id, std::set<std::pair<step_number, incarnation>>> requests_;  // not yet answered
  std::map<tile_id, std::set<std::pair<step_number, incarnation>>> reading_;   // being read for them
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
  std::map<std::pair<incarnation, tile_id>, std::optional<step_number>> asked_feeds_;  // and what they have
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
