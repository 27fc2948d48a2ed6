// A cluster in one thread and virtual time: the coordinator's and the workers' logic, the very code that the
// processes run, over links and a work lane that are simulated. All randomness comes from the seed; the same
// seed is the same run.
//
// world.cpp: the clock, one seed from start to end. network.cpp: links and control connections.
// processes.cpp: what the shells do, for real, in the processes. invariants.cpp: what is checked at every
// event.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "chaos/sim/oracle.hpp"
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
  explicit world(const sim_options& options);
  sim_result run();

 private:
  using micros = std::int64_t;

  struct process {
    incarnation id;
    std::unique_ptr<worker::step_protocol> logic;
    worker::effects out;
    std::vector<toy_tile> tiles;
    double slowness = 1;
    bool alive = true;
    bool stopped = false;
    std::vector<std::function<void()>> deferred;  // while stopped
    micros lane_free = 0;
    // Blocks being computed; an attempt that was given up hands nothing over.
    step_number computing_step;
    std::map<block, std::uint64_t> attempts;
    std::uint64_t attempt = 0;
    std::vector<std::pair<block, std::uint64_t>> gathering;  // blocks that wait for parameters
    std::vector<std::optional<step_number>> resident;        // version of each tile's parameters
    std::vector<bool> has_state;                             // of each tile, beside its parameters
    std::map<std::size_t, std::uint64_t>
        linked;  // peers, and the session of the link as this process knows it
    // connection to the coordinator
    bool connected = false;
    std::uint64_t session = 0;
    micros to_coordinator = 0, from_coordinator = 0;  // last arrival: order is kept
    micros heard = 0;                                 // by the coordinator
    step_number seen;                                 // newest verdict, for counting
    // as of the last event
    std::vector<bool> held_before;
    era era_before;
    std::optional<plan> known;
  };

  struct direction {
    micros last = 0;
    double slowness = 1;
    std::uint64_t sent = 0, arrived = 0,
                  cutoff = ~0ULL;  // of this session: frames beyond the cutoff are lost
  };
  struct pair_link {
    std::uint64_t session = 0;
    bool up = false;
    direction way[2];
  };

  // world.cpp
  micros random(micros low, micros high) {
    return low + static_cast<micros>(rng_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double p) { return static_cast<double>(rng_() >> 11) * 0x1p-53 < p; }
  void at(micros when, std::function<void()> what);
  void on_process(std::size_t p, micros when, std::function<void()> what);
  void run_in(std::size_t p, const std::function<void()>& what);
  void trace(const std::string& line) const;
  void setup();
  void plan_faults();
  void inject_fault();
  bool settled_down() const;

  // processes.cpp
  std::size_t start_process();
  void kill_process(std::size_t p, const std::string& why);
  void start_coordinator();
  void crash_coordinator();
  void run_worker_effects(std::size_t p);
  struct worker_effects;
  void run_worker_effect(std::size_t p, worker::effects_item& e);
  bool is_wanted(std::size_t p, step_number step, const block& b, std::uint64_t attempt) const;
  void on_lane(std::size_t p, micros cost, std::function<void()> work, std::function<void()> done);
  void run_coordinator_effects();
  void with_coordinator(const std::function<void(coordinator::supervisor&)>& event);
  void collect_chunk(const chunk_report& c);
  void heartbeat(std::size_t p);
  void tick();
  coordinator::time_point now() const { return coordinator::time_point(std::chrono::microseconds(clock_)); }

  // network.cpp
  std::size_t index_of(const incarnation& who) const { return who.low - 1; }
  pair_link& link_of(std::size_t a, std::size_t b) { return links_[{std::min(a, b), std::max(a, b)}]; }
  void connect_link(std::size_t a, std::size_t b);
  void break_link(std::size_t a, std::size_t b, bool reconnect);
  void send_frame(std::size_t from, const incarnation& to, frame f);
  void connect_control(std::size_t p);
  void break_control(std::size_t p, bool reconnect);
  void tell_coordinator(std::size_t p, worker_message m);
  void tell_worker(const incarnation& to, coordinator_order o);

  // invariants.cpp
  [[noreturn]] void fail(const std::string& what) const;
  std::string where_all_are() const;
  void check_tile(std::size_t p, tile_id tile, step_number version);
  void check_parameters(std::size_t p, step_number version);
  void check_verdict(std::size_t p, const verdict& v);
  void check_recovery(const recover_order& r);
  void check_letting_go(std::size_t p);
  void after_event(std::size_t p);

  sim_options options_;
  std::mt19937_64 rng_;
  job_config job_;
  std::uint32_t tiles_ = 1;
  std::uint16_t replicas_ = 0;
  std::unique_ptr<oracle> oracle_;

  struct event {
    micros when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const event& e) const { return when != e.when ? when > e.when : order > e.order; }
  };
  std::priority_queue<event> events_;
  std::uint64_t order_ = 0;
  micros clock_ = 0;
  micros quiet_after_ = 0;  // no faults later than this

  std::vector<std::unique_ptr<process>> processes_;
  std::map<std::pair<std::size_t, std::size_t>, pair_link> links_;

  // the coordinator: what is durable outlives it
  std::unique_ptr<coordinator::supervisor> coordinator_;
  coordinator::effects coordinator_out_;
  coordinator::durable_state durable_;
  coordinator::restore_point checkpoint_;
  std::uint32_t term_ = 0;
  double crash_between_effects_ = 0;

  // what has been seen
  std::map<std::pair<timeline_number, step_number>, verdict> verdicts_;
  std::map<std::pair<era, step_number>, plan_id> plans_;
  std::map<timeline_number, step_number> highest_;
  timeline_number newest_timeline_;
  std::map<era, recover_order> recoveries_;
  std::map<std::pair<timeline_number, step_number>, std::set<tile_id>> chunks_;
  sim_result result_;
};

sim_result run_seed(const sim_options& options);

}  // namespace perdura::sim
