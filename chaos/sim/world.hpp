// A cluster in one thread and virtual time: the coordinator's and the workers' logic, the very code that the
// processes run, over links, disks and a work lane that are simulated. All randomness comes from the seed;
// the same scenario is the same run.
//
// world.cpp: the clock, one run from start to end. faults.cpp: what goes wrong. network.cpp: links and
// control connections. processes.cpp and coordinators.cpp: what the shells do, for real, in the processes.
// invariants.cpp: what is checked at every event.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "chaos/sim/oracle.hpp"
#include "chaos/sim/schedule.hpp"
#include "chaos/sim/task.hpp"
#include "coordinator/logic/lease_table.hpp"
#include "coordinator/logic/supervisor.hpp"
#include "worker/logic/step_protocol.hpp"

namespace perdura::sim {

struct violation : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct sim_options {
  std::uint64_t seed = 1;
  broken_rules broken;
  bool trace = false;
};

struct sim_result {
  std::uint64_t worker_steps = 0;  // steps that some worker saw decided
  std::uint64_t events = 0;
  std::uint64_t recoveries = 0;
  std::uint64_t restores = 0;
  std::optional<std::string> violated;
};

class world {
 public:
  world(const scenario& run, broken_rules broken, bool trace);
  sim_result run();

 private:
  static constexpr micros lease = 60'000;
  static constexpr std::chrono::milliseconds slow_between{500};

  // Where things happen: in a process, which may be stopped, or wait for its disk, and then does them later.
  struct host {
    std::size_t index = 0;
    bool is_coordinator = false;
    bool alive = true;
    bool stopped = false;
    bool writing = false;
    std::vector<task> deferred;
    bool is_held() const { return stopped || writing; }
  };

  struct coordinator_process : host {
    term_number term;
    draws rng;
    std::unique_ptr<coordinator::supervisor> logic;
    coordinator::effects out;
    std::deque<coordinator::effects_item> waiting;  // effects not yet executed, in order
    coordinator::durable_state persisted;           // by this life
    std::optional<coordinator::lease_table> leases;
    std::set<incarnation> known;  // said hello and are not lost: what the shell calls its workers
    std::map<incarnation, micros> arrived_from;  // last word at this process' socket
    double clock_rate = 1;
    micros clock_offset = 0;
    std::string era_cause;    // of the newest era
    unsigned slow_notes = 0;  // decisions about slow workers
    micros began = 0;
    std::map<std::pair<timeline_number, step_number>, std::set<tile_id>> chunks;
    coordinator::time_point now(micros clock) const {
      return coordinator::time_point(std::chrono::microseconds(
          clock_offset + static_cast<micros>(clock_rate * static_cast<double>(clock))));
    }
  };

  // Between a worker and a coordinator. One that the worker has left may still deliver what was under way.
  struct connection {
    coordinator_process* with = nullptr;
    bool open = true;
    bool lost = false;
    micros last_up = 0, last_down = 0;  // arrivals: order is kept
  };

  struct process : host {
    std::uint32_t seat = 0;
    incarnation id;
    draws rng;
    std::unique_ptr<worker::step_protocol> logic;
    worker::effects out;
    std::vector<toy_tile> tiles;
    double slowness = 1;
    double clock_rate = 1;
    micros lane_free = 0;
    std::uint64_t slots_done = 0;
    double slot_seconds = 0;
    bool is_leaving = false;
    // Blocks being computed; an attempt that was given up hands nothing over.
    step_number computing_step;
    std::map<block, std::uint64_t> attempts;
    std::uint64_t attempt = 0;
    std::vector<std::pair<block, std::uint64_t>> gathering;  // blocks that wait for parameters
    std::vector<std::optional<step_number>> resident;        // version of each tile's parameters
    std::vector<bool> has_state;                             // of each tile, beside its parameters
    std::map<std::size_t, std::uint64_t>
        linked;  // peers, and the session of the link as this process knows it
    std::shared_ptr<connection> control;
    step_number seen;  // newest verdict, for counting
    // as of the last event
    std::vector<bool> held_before;
    era era_before;
    std::optional<plan> known;
  };

  struct seat_state {
    std::uint32_t lives = 0;
    std::size_t current = 0;  // process
    draws rng;
    micros up_silent_until = 0, down_silent_until = 0;  // to and from the coordinator
  };

  struct direction {
    draws rng;
    double slowness = 1;
    micros last = 0;
    micros silent_until = 0;
    std::uint64_t sent = 0, arrived = 0;
    std::uint64_t sent_before_silence = 0;
    std::uint64_t cutoff = ~0ULL;  // of this session: frames beyond the cutoff are lost
  };
  // Between two seats, the lower first; way[0] leads away from it.
  struct pair_link {
    std::uint64_t session = 0;
    bool up = false;
    std::size_t end[2]{};                                    // processes of this session
    std::optional<std::pair<std::size_t, std::size_t>> cut;  // these two never find each other again
    direction way[2];
  };

  struct disk {
    coordinator::durable_state synced;
    std::vector<verdict> unsynced;  // since the last sync
    term_number claimed;            // the newest term: older ones cannot write any more
    micros slow_until = 0, write_takes = 0;
  };

  // world.cpp
  void at(micros when, task what) { push(when, nullptr, std::move(what)); }
  void on_process(std::size_t p, micros when, task what) { push(when, processes_[p].get(), std::move(what)); }
  void push(micros when, host* where, task what);
  void deliver(host* where, task& what);
  void run_in(host& where, task& what);
  void release(host& where);
  void trace(const std::string& line) const;
  bool settled_down() const;

  // faults.cpp
  void inject(const fault& f);
  void inject_for_a_while(const fault& f);
  void drain_and_take_away(const fault& f, std::size_t p);
  void leave_by(const fault& f);
  void cut_link(std::uint32_t a, std::uint32_t b);
  void stop(host& where, micros lasts);
  void silence_link(std::uint32_t from, std::uint32_t to, micros lasts);
  void silence_control(std::uint32_t seat, bool upwards, micros lasts);
  void separate(std::uint32_t seats, bool with_coordinator, micros lasts);
  std::optional<std::size_t> live_on(std::uint32_t seat) const;

  // processes.cpp
  std::size_t start_process(std::uint32_t seat);
  void kill_process(std::size_t p, const std::string& why, bool vanishes = false);
  void run_worker_effects(std::size_t p);
  struct worker_effects;
  void run_worker_effect(std::size_t p, worker::effects_item& e);
  bool is_wanted(std::size_t p, step_number step, const block& b, std::uint64_t attempt) const;
  void heartbeat(std::size_t p);

  // coordinators.cpp
  coordinator_process* newest_coordinator();
  const coordinator_process* newest_coordinator() const;
  void start_coordinator();
  void crash_coordinator(coordinator_process& c, bool with_machine, micros back_after);
  void take_over(micros old_lives_on);
  void run_coordinator_effects(coordinator_process& c);
  void run_effect(coordinator_process& c, const coordinator::effects_item& item);
  bool write(coordinator_process& c, const coordinator::durable_state& s);
  // Asks the newest coordinator, when it gets to it.
  template <class F>
  void ask_coordinator(micros when, F what) {
    at(when, [this, what = std::move(what)] {
      auto* c = newest_coordinator();
      if (!c) return;
      task asks = [c, what] { what(*c); };
      deliver(c, asks);
    });
  }
  void hear(coordinator_process& c, const worker_message& m);
  void lose(coordinator_process& c, const incarnation& who, const std::string& why);
  void collect_chunk(coordinator_process& c, const chunk_report& chunk);
  void let_links_go(const coordinator::event& left);
  void tick(coordinator_process& c);
  void check_leases(coordinator_process& c);
  void end_job(const coordinator::effect::end& x);

  // network.cpp
  static std::size_t index_of(const incarnation& who) { return who.low - 1; }
  pair_link& link_of(std::uint32_t a, std::uint32_t b) { return links_[std::min(a, b)][std::max(a, b)]; }
  void connect_link(std::uint32_t a, std::uint32_t b);
  void break_link(std::uint32_t a, std::uint32_t b);
  void sever(pair_link& l, micros notice_low, micros notice_high, bool reconnect);
  void send_frame(std::size_t from, const incarnation& to, frame f);
  void connect_control(std::size_t p);
  void break_control(std::size_t p);
  void tell_coordinator(std::size_t p, worker_message m);
  void tell_worker(coordinator_process& c, const incarnation& to, coordinator_order o);

  // invariants.cpp
  [[noreturn]] void fail(const std::string& what) const;
  std::string where_all_are() const;
  void check_tile(std::size_t p, tile_id tile, step_number version);
  void check_parameters(std::size_t p, step_number version);
  void check_verdict(std::size_t p, const verdict& v);
  void check_note(const coordinator_process& c, const coordinator::event& e);
  void check_has_left(std::size_t p) const;
  void check_begun(std::size_t p, step_number step, const block& slots);
  void check_owner(std::size_t p, step_number step, tile_id tile);
  void check_order(const coordinator_process& c, const coordinator_order& o);
  void check_plan(const coordinator::durable_state& on_disk, const plan& next, bool restores_copies) const;
  void check_recovery(const coordinator_process& c, const recover_order& r);
  void check_letting_go(std::size_t p);
  void after_event(std::size_t p);

  node_labels labels_of(std::uint32_t seat) const {
    return {"host-" + std::to_string(scenario_.host_of(seat)), {}, {}};
  }

  const scenario scenario_;
  const broken_rules broken_;
  const bool trace_;
  job_config job_;
  std::uint32_t tiles_ = 1;
  std::uint32_t replicas_ = 0;
  oracle oracle_;

  struct event {
    micros when;
    std::uint64_t order;
    host* where;
    task what;
    bool operator<(const event& e) const { return when != e.when ? when > e.when : order > e.order; }
  };
  std::vector<event> events_;  // a heap
  std::uint64_t order_ = 0;
  micros clock_ = 0;
  micros calm_after_ = 0;  // no faults later than this

  std::vector<std::unique_ptr<process>> processes_;
  std::array<seat_state, seats_max> seats_;
  std::array<std::array<pair_link, seats_max>, seats_max> links_;
  std::vector<std::unique_ptr<coordinator_process>> coordinators_;
  disk disk_;
  coordinator::restore_point checkpoint_;  // the newest in the store
  std::set<std::pair<timeline_number, step_number>> committed_;

  // armed by faults
  struct trap {
    std::uint32_t after = 0;
    bool with_machine = false;
    micros lasts = 0;
  };
  std::optional<trap> crash_trap_;
  std::optional<trap> switch_trap_;

  // what has been seen
  std::map<std::pair<timeline_number, step_number>, verdict> verdicts_;
  std::map<std::pair<era, step_number>, plan_id> plans_;
  std::set<plan_id> planned_;  // decided or proposed
  std::map<std::tuple<era, step_number, tile_id>, std::size_t> owners_;
  std::set<std::tuple<timeline_number, step_number, std::uint32_t>> begun_;
  std::map<timeline_number, step_number> highest_;
  timeline_number newest_timeline_;
  std::map<era, recover_order> recoveries_;
  sim_result result_;
};

sim_result run_scenario(const scenario& s, broken_rules broken = {}, bool trace = false);
sim_result run_seed(const sim_options& options);

}  // namespace perdura::sim
