// The worker as an actor: its mailbox is where orders, frames and results of the lane meet.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "actors/runtime/connect_lane.hpp"
#include "actors/runtime/harden.hpp"
#include "actors/tls/identity.hpp"
#include "actors/wire/interfaces.hpp"
#include "worker/worker_shell.hpp"

namespace perdura::worker {

// Private to this process: run this on the actor's thread.
struct here {
  std::function<void(worker_shell&)> what;
};
// The lane has, or has not, reached the coordinator.
struct coordinator_found {
  caf::strong_actor_ptr who;
};
struct hello_again {};

}  // namespace perdura::worker
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::here)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::hello_again)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::coordinator_found)

namespace perdura::worker {

using worker_actor = wire::worker_control_actor::extend<wire::cast<here>, wire::cast<hello_again>,
                                                        wire::cast<coordinator_found>>;

struct worker_actor_options {
  shell_options shell;
  endpoint coordinator;
  tls::identity_ptr identity;  // null: a cluster without certificates
  frame_links::maker make_links;
  std::function<void(const std::string& why)> stop;  // ends the process; called once
};

struct worker_state {
  static inline const char* name = "worker";
  std::unique_ptr<worker_shell> shell;
  tls::identity_ptr identity;
  wire::coordinator_actor coordinator;
  bool accepted = false;  // this connection's hello
  caf::actor beat;        // heartbeats of this connection
  // The newest steps decided, and all that were while there was no coordinator: said again to the next
  // connection.
  std::deque<verdict_report> decided;
  std::string job;  // that they are of
  std::unique_ptr<runtime::connect_lane> connector;

  void lose_coordinator() {
    accepted = false;
    coordinator = nullptr;
    if (beat) caf::anon_send_exit(beat, caf::exit_reason::user_shutdown);
    beat = nullptr;
  }
};

worker_actor::behavior_type worker(runtime::hardened<worker_actor, worker_state>* self,
                                   worker_actor_options options);

}  // namespace perdura::worker
