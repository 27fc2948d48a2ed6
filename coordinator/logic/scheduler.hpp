// Which worker serves which job. Decides from the jobs and workers as they are now; all that it keeps between
// two decisions is since when a job has lacked workers, and how many it has been given.
//
// - Gangs: a job starts only with its least number of workers, all at once. Until then it holds none.
// - Priority: one that cannot start takes workers of lower ones, first those above their least number; if
// that
//   is not enough, whole jobs are stopped, with a checkpoint. Nothing is ever taken from equals.
// - Fairness: a free worker goes to the highest job that wants it, among equals to whom one was lost, then to
//   whoever waits for its first workers, then where there are fewest.
// - Calm: workers are taken only for a job that lacks its least number, and from a job that has been started
//   only for one that has lacked them for a while.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/base/ids.hpp"

namespace perdura::coordinator {

struct job_demand {
  std::string id;  // ids sort by age
  std::int32_t priority{};
  std::uint32_t min_workers = 1;
  std::uint32_t max_workers{};  // spares included; 0: as many as there are
  bool started = false;
  bool computes = false;           // false: whatever it holds would be given up without loss
  bool stopping = false;           // it gives up all its workers, and will wait
  bool on_hold = false;            // not started, and a person does not want it to
  std::vector<incarnation> unfit;  // they cannot serve it: other bits, or they failed to load it
};

struct worker_supply {
  incarnation who;
  std::string name;       // for reasons
  std::string node;       // its name
  std::string job;        // that it serves; empty: it is free
  bool leaving = false;   // it hands over what it holds for that job, and will be free
  bool going = false;     // it is drained for good: to no job
  std::uint32_t slots{};  // of its job's steps
};

struct schedule {
  struct start {
    std::string job;
    std::vector<incarnation> workers;
    std::string reason;
  };
  struct move {
    incarnation who;
    std::string job;
    std::string reason;
  };
  struct stop {
    std::string job;
    std::string reason;
  };
  std::vector<start> starts;
  std::vector<move> gives;  // free workers, to jobs that have started
  std::vector<move> takes;  // from their jobs: they hand over what they hold
  std::vector<stop> stops;
  std::map<std::string, std::string> lacks;  // what a job that waits, or has fewer than it needs, is missing
};

class scheduler {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // `patience`: how long a job that has started lacks its least number before others give up workers for it.
  // Longer than it takes a node to start a worker again.
  explicit scheduler(std::chrono::milliseconds patience) : patience_(patience) {}

  schedule decide(const std::vector<job_demand>& jobs, const std::vector<worker_supply>& workers,
                  time_point now);

 private:
  const std::chrono::milliseconds patience_;
  std::map<std::string, time_point> lacking_since_;  // started jobs
  std::map<std::string, std::uint32_t> given_;       // to started jobs, the most they have had
};

}  // namespace perdura::coordinator
