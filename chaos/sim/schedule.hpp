// What a run is made of: a cluster and a list of timed faults. A seed draws both; all else (speeds, delays,
// what of a broken link arrives) is a function of the seed too, but not of the faults. So a fault can be left
// out and the rest stays as it was.
#pragma once

#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "chaos/sim/draws.hpp"

namespace perdura::sim {

inline constexpr std::uint32_t seats_max = 8;  // places for workers; a seat has one life after the other

enum class fault_kind : std::uint8_t {
  kill,               // the worker on seat a; its agent says so
  vanish,             // its machine: nobody is told, connections time out
  break_link,         // between seats a and b
  break_control,      // of seat a
  silence_link,       // nothing from seat a to seat b arrives, for a while
  silence_control,    // b = 0: nothing from seat a reaches the coordinator, 1: the other way
  partition,          // seats in the bits of a from the others; b = 1: the coordinator is with them
  crash_coordinator,  // a = 1: with its machine, unsynced writes are lost; comes back after a while
  crash_at_effect,    // between its effects: after a of them
  take_over,          // a second coordinator claims the next term, the old one lives on for a while
  stop_worker,        // SIGSTOP, then SIGCONT after a while
  stop_coordinator,
  slow_disk,  // the coordinator's: each synced write takes a microseconds
  suspect,    // the coordinator takes seat a for dead
  drain,      // seat a, and it is taken away after a while; b = 1: which is its deadline
  snapshot,
  pause,           // resumed after a while
  join,            // a worker starts on seat a, if none did yet
  kill_at_switch,  // the first worker to see a verdict that changes plans, a little later
  count_,
};
const char* to_string(fault_kind k);

struct fault {
  micros when{};
  fault_kind kind{};
  std::uint32_t a{}, b{};
  micros lasts{};
  bool operator==(const fault&) const = default;
};

struct scenario {
  std::uint64_t seed = 1;
  std::uint32_t workers = 1;
  std::uint32_t slots = 2;
  std::uint32_t tiles = 1;
  std::uint32_t copies = 0;    // of each tile; 0: everywhere
  std::uint32_t sharding = 0;  // a sharding_level; 0 with copies 0 alone
  std::uint64_t steps = 1'000'000;
  std::uint64_t interval = 5;       // of checkpoints
  std::uint32_t link_patience = 0;  // ms until members that find no link to each other are let go; 0: never
  std::vector<fault> faults;        // by time
  bool operator==(const scenario&) const = default;

  micros calm_after() const;  // the last fault is over
};

scenario draw_scenario(std::uint64_t seed);

// "seed 7 workers 2 ...; 12345 kill 1; 20000 silence_link 0 1 30000": times in microseconds, separated by
// semicolons or lines. Error invalid_argument says what was not understood.
std::string to_string(const scenario& s);
result<scenario> parse_scenario(const std::string& text);

}  // namespace perdura::sim
