// The coordinator's side of the step protocol for one job: who is a member, when an era opens, what a
// recovery settles on, which plan is proposed next. A state machine without I/O; the shell executes its
// effects in order, so that what is persisted is durable before anything that depends on it is sent.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/control.hpp"
#include "actors/base/rules.hpp"
#include "coordinator/logic/event.hpp"
#include "coordinator/logic/link_cover.hpp"
#include "coordinator/logic/planner.hpp"
#include "coordinator/logic/recovery.hpp"
#include "coordinator/logic/straggler.hpp"

namespace perdura::coordinator {

using time_point = std::chrono::steady_clock::time_point;

// A worker that is to go, or is let go because it is slow.
struct drain_record {
  incarnation who;
  std::uint64_t within_ms{};  // it is gone then; 0: no deadline. A coordinator that comes back counts anew
  bool is_slow = false;       // by the supervisor's own decision: it may come back after a while
  std::string why;
  bool operator==(const drain_record&) const = default;
};

// What survives the coordinator. Written whole; small.
struct durable_state {
  era at;
  timeline_number timeline;
  std::optional<recover_order> recovery;  // the last one decided
  bool started = false;                   // its plan
  plan current;                           // newest plan known to be effective
  std::optional<proposal_order> pending;
  std::vector<incarnation> releasing;  // leavers that have not let go
  std::vector<drain_record> draining;
  std::vector<incarnation> fenced;  // newest last, bounded
  std::optional<verdict> newest;
  std::uint32_t sequence{};  // of the last proposal in this era
  plan_action wanted = plan_action::train;
  bool ended = false;
  std::uint64_t numeric_class{};  // of the job; 0 until its first worker
  std::uint32_t members_most{};   // that there have been: spares step in up to these
};

// What is left of it when all workers have been taken away: it goes on from the last checkpoint.
durable_state without_workers(durable_state state);

namespace effect {
struct persist {
  std::shared_ptr<const durable_state> state;  // large; effects are copied and moved in numbers
};
// The newest verdict alone, at every step; need not be synced.
struct record {
  verdict newest;
};
struct send {
  incarnation to;
  std::shared_ptr<const coordinator_order>
      order;  // one for all who get it: a plan is as large as the cluster
};
struct note {
  event what;
};
// A chunk of a snapshot is durable at a worker.
struct collect {
  chunk_report chunk;
};
// A fenced or hung process is ended by its node agent.
struct kill {
  incarnation who;
  std::string why;
};
// The job is over; `tile_hashes` are those of the last step when it finished, else empty.
struct end {
  event_kind how{};
  std::string why;
  std::vector<std::uint64_t> tile_hashes;
};
}  // namespace effect

using effects_item = std::variant<effect::persist, effect::record, effect::send, effect::note,
                                  effect::collect, effect::kill, effect::end>;
using effects = std::vector<effects_item>;

struct supervisor_options {
  std::uint32_t tiles{};
  std::uint32_t replicas = 0;          // of each tile; 0: every member
  std::vector<std::uint32_t> weights;  // sizes of the tiles; empty: all alike
  std::chrono::milliseconds lease{1500};
  std::chrono::milliseconds gather{1000};  // wait for more workers before the first step
  std::chrono::milliseconds adopt_timeout{
      10000};  // inventories or adoptions later than this cost the membership
  std::chrono::milliseconds learn_timeout{30000};     // learners later than this are given up
  std::chrono::milliseconds final_checkpoint{30000};  // the end of a job waits for its last one
  // Members that have not found each other so long after a recovery was decided do not: some of them go.
  std::chrono::milliseconds link_patience{2000};
  // Whoever was let go because it is slow, or cannot talk to some, stays out so long; doubled each time.
  std::chrono::milliseconds probation{60000};
  straggler_options slow;
  std::size_t fenced_max = 4096;
};

struct restore_point {
  restore_source source;
  std::optional<verdict> at;  // none for the seed
};

enum class stage : std::uint8_t { waiting, reconnecting, fencing, recovering, running, ended };
const char* to_string(stage s);

class supervisor {
 public:
  // `known`: what a coordinator before this one left behind, else default.
  supervisor(term_number term, const job_config& job, supervisor_options options, durable_state known,
             restore_point restore, effects& out, time_point now, broken_rules broken = {});

  // ---- events
  // A worker said hello, for the first time or again. Its numeric class is known (the canary has run).
  // `at`: where its machine stands.
  void arrived(const worker_hello& hello, const node_labels& at, time_point now);
  // Of any connected worker: how fast it is.
  void beat(const heartbeat& h, time_point now);
  // The process is gone, its lease has expired, or it is to be treated so.
  void lost(const incarnation& who, const std::string& why, time_point now);
  void received(const worker_message& m, time_point now);
  void checkpoint_committed(const restore_point& point, time_point now);
  void tick(time_point now);
  // ---- commands
  void pause(time_point now);
  void resume(time_point now);
  void cancel(const std::string& why);
  void snapshot_now(time_point now);
  // Pauses with a snapshot of that step, so that all workers can be let go: is_at_rest() says when.
  void suspend(time_point now);
  // It serves another job from now on; it must not be involved.
  void dismissed(const incarnation& who);
  // Moves off what they hold and compute, all at once, and lets them go; nothing is recomputed. `within`:
  // their machine is gone then, and whoever still is a member counts as lost. Asked again, the earlier
  // deadline holds. May name workers that are yet to arrive: they will not join.
  void drain(const std::vector<incarnation>& who, std::optional<std::chrono::milliseconds> within,
             const std::string& why, time_point now);
  // All members wait for each other and the step is overdue, `who` as far as can be told: a new era of the
  // same members says everything again; if the step stalls once more, `who` goes.
  void stalled(const incarnation& who, const std::string& why, time_point now);

  // ---- what it looks like from outside
  stage where() const { return stage_; }
  const durable_state& state() const { return state_; }
  bool is_member(const incarnation& who) const { return state_.current.has_member(who); }
  bool is_learner(const incarnation& who) const;
  bool is_draining(const incarnation& who) const;
  bool is_fenced(const incarnation& who) const;
  // Connected, with the job loaded, but kept for when a member is lost or slow, or beyond the quota.
  bool is_spare(const incarnation& who) const;
  // Until its machine is gone; none without a deadline.
  std::optional<std::chrono::milliseconds> time_left(const incarnation& who, time_point now) const;
  const pace_book& paces() const { return slow_.paces(); }
  // Its death costs more than its own comfort: a member, a learner, a leaver that still holds something.
  bool is_involved(const incarnation& who) const;
  // Nothing is under way or could be saved any more: paused with its snapshot committed, or waiting for
  // workers.
  bool is_at_rest() const;
  std::vector<incarnation> connected() const;
  const std::string& waiting_for() const { return waiting_for_; }

 private:
  struct worker {
    worker_hello hello;
    node_labels at;
    time_point since;
  };
  struct drain_clock {
    drain_record record;
    time_point asked;
    std::optional<time_point> deadline;
    std::optional<time_point> back_at;  // one that is slow: when it may come back
  };
  struct apart {
    time_point until;
    std::chrono::milliseconds probation{};
  };

  bool broken(rule r) const { return broken_.has(r); }
  void persist();
  void send(const incarnation& to, coordinator_order order) {
    out_.push_back(effect::send{to, std::make_shared<const coordinator_order>(std::move(order))});
  }
  void send_to_all(const std::vector<incarnation>& everybody, coordinator_order order) {
    const auto shared = std::make_shared<const coordinator_order>(std::move(order));
    out_.reserve(out_.size() + everybody.size());
    for (const auto& who : everybody) out_.push_back(effect::send{who, shared});
  }
  void note(event_kind kind, std::string subject, std::string reason,
            std::vector<std::pair<std::string, std::string>> fields = {});
  std::string name_of(const incarnation& who) const;
  void fence(const incarnation& who, const std::string& why);

  // supervisor.cpp
  void begin_if_enough(time_point now);
  void resume_if_complete(time_point now);
  void open_era(const std::string& cause, const std::string& why, time_point now);
  void on_inventory(const inventory_report& r, time_point now);
  void decide_if_complete(time_point now);
  void on_adopted(const plan_adopted& a, time_point now);
  void on_complaint(const link_complaint& c, time_point now);
  void on_missing_link(const link_complaint& c);
  void give_up_on_links(time_point now);
  void let_go_of_cover(const std::vector<broken_link>& links, const std::string& why, time_point now);
  void on_final(const final_report& r, time_point now);
  std::optional<std::vector<std::uint64_t>> final_hashes();
  void finish_if_complete(time_point now);
  void give_up_on_silent(time_point now);
  void give_up_on_learners(time_point now);
  void catch_up(const incarnation& who);
  recovery_input take_recovery_input();
  void end(event_kind how, const std::string& why, std::vector<std::uint64_t> hashes);

  // proposals.cpp
  void on_verdict(const verdict_report& r, time_point now);
  void on_released(const released_report& r, time_point now);
  void take_effect();
  void propose_if_wanted(time_point now);
  // Who is a member under the next plan, of those that are connected.
  struct intended {
    std::vector<incarnation> members;
    std::vector<incarnation> leavers;
    std::size_t joining = 0;
    bool is_urgent = false;  // a leaver's deadline is near: no copies but those that would be lost
  };
  std::optional<proposal_order> next_proposal(time_point now, std::string& why);
  intended intended_members(bool may_join, time_point now);
  void fill_plan(proposal_order& p, const intended& who, bool new_blocks) const;
  std::vector<tile_move> moves_of(const proposal_order& p) const;
  bool lacks_copies(const plan& p, std::size_t members) const;

  // departures.cpp
  bool may_join(const incarnation& who, time_point now) const;
  std::vector<incarnation> candidates(time_point now) const;
  std::size_t able_to_join(time_point now) const;
  std::size_t members_wanted(std::size_t able) const;
  std::vector<candidate> capacities(const std::vector<incarnation>& who) const;
  std::uint32_t largest_block() const;
  std::vector<std::uint32_t> weights() const;
  void record_drains();
  void forget_drain(const incarnation& who);
  bool is_urgent(const incarnation& who, time_point now) const;
  void watch_drains(time_point now);
  void drain_is_blocked(time_point now);
  void follow_advice(time_point now);
  crew crew_of_now(time_point now) const;
  void put_aside(const incarnation& who, const std::string& why, time_point now);

  const term_number term_;
  const job_config job_;
  const supervisor_options options_;
  effects& out_;
  const broken_rules broken_;

  durable_state state_;
  stage stage_ = stage::waiting;
  std::string waiting_for_;
  std::map<incarnation, worker> workers_;  // connected and admitted
  std::map<incarnation, std::string> names_;
  std::map<incarnation, drain_clock> drains_;  // as in state_.draining
  straggler_watch slow_;
  std::map<std::string, std::chrono::milliseconds> probation_;  // of workers let go, by name
  std::string move_blocks_;                                     // why, when slots are to follow the speeds
  std::vector<released_report> released_early_;                 // by leavers of the pending plan
  bool look_ = true;                                            // something has changed since the last look
  bool drain_blocked_ = false;                                  // said
  bool pending_is_urgent_ = false;
  std::set<broken_link> missing_links_;  // of the plan being adopted
  // From the pending plan's newcomers, and what they lack a link to.
  std::map<std::pair<incarnation, incarnation>, time_point> unready_links_;
  time_point decided_at_{};
  link_record link_record_;
  std::map<broken_link, apart> apart_;  // nodes whose workers could not talk
  std::optional<step_number> stalled_;
  std::map<incarnation, inventory_report> inventories_;
  std::set<incarnation> awaited_;  // inventories, then adoptions
  std::map<incarnation, final_report> finals_;
  std::optional<link_complaint> complaint_;  // heard while reconnecting
  restore_point restore_;
  bool snapshot_wanted_ = false;
  std::optional<time_point> deadline_;
  std::optional<time_point> final_deadline_;
  std::optional<time_point> learn_deadline_;  // of the pending plan's learners
};

}  // namespace perdura::coordinator
