// The workers of this machine, one a device. Each life is a process with an incarnation of its own; one that
// ends is started again, until `stop`. All on main's thread, as child_processes, but for `wake` and `alive`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/control.hpp"
#include "worker/node/child_processes.hpp"
#include "worker/node/respawn_policy.hpp"

namespace perdura::worker {

struct keeper_options {
  std::string program;  // perdura-worker
  std::string name;     // the node's
  incarnation node;
  std::uint32_t devices = 1;
  endpoint coordinator;
  std::string host;        // for the workers' links; empty: as they find it
  std::string tls_folder;  // of the workers' certificate; empty: no TLS
  std::string log_folder;
  std::string fault;                      // of the first worker's first life; or empty
  std::chrono::milliseconds grace{3000};  // from SIGTERM to SIGKILL
};

// What workers have written to DIR/worker-NAME-DEVICE.out is put aside as .out.1 at the start of a life that
// finds more than this.
inline constexpr std::uintmax_t output_bytes_max = 4U << 20;

class worker_keeper {
 public:
  explicit worker_keeper(keeper_options options);

  // Starts all that do not run, without waiting for their time.
  void start_missing();
  // Starts none any more.
  void hold() { holding_ = true; }
  // SIGKILL. False: that life does not run.
  bool kill(const incarnation& life);
  // Asks all to end, kills those that have not after `grace`, and starts none any more.
  void stop();
  bool is_stopping() const { return stopping_; }
  bool is_over() const { return stopping_ && children_.size() == 0; }

  // Waits until a worker ends, one is due to be started, `wake`, or so long; gives the lives that have ended.
  std::vector<perdura::child_exit> look_after(std::chrono::milliseconds patience = std::chrono::hours(1));
  void wake() { children_.wake(); }
  std::uint32_t alive() const { return alive_; }

 private:
  using clock = std::chrono::steady_clock;
  // A device and the life of its worker. Without a child it is waiting for `due`.
  struct place {
    std::string name;  // "node-1/0"
    std::optional<child_number> child;
    incarnation life;
    bool killed = false;  // by us
    clock::time_point due = clock::time_point::min();
    respawn_policy policy;
  };

  void start(place& p);
  void start_due();
  std::chrono::milliseconds until_next_start(std::chrono::milliseconds patience) const;
  child_spec command_for(const place& p);
  perdura::child_exit record(place& p, const child_exit& e);

  const keeper_options options_;
  child_processes children_;
  std::vector<place> places_;
  std::string fault_;  // until it has been passed on
  std::atomic<std::uint32_t> alive_ = 0;
  bool holding_ = false;
  bool stopping_ = false;
};

}  // namespace perdura::worker
