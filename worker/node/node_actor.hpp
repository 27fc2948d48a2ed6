// The node agent's side of the coordinator: hello, heartbeats, ends of workers; orders come back. What they
// ask for happens on main's thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/runtime/connect_lane.hpp"
#include "actors/runtime/harden.hpp"
#include "actors/tls/identity.hpp"
#include "actors/wire/interfaces.hpp"
#include "worker/node/commands.hpp"

namespace perdura::worker::node {

// Private to this process. From main: a life has ended.
struct worker_ended {
  perdura::child_exit what;
};
// From the lane.
struct connected {
  caf::strong_actor_ptr coordinator;
};
// To itself, for one connection; it means nothing to the next.
struct beat {
  std::uint32_t connection;
};
struct greet_again {
  std::uint32_t connection;
};

}  // namespace perdura::worker::node
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::node::worker_ended)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::node::connected)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::node::beat)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::node::greet_again)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::worker::node::leave)

namespace perdura::worker::node {

using node_actor =
    wire::node_control_actor::extend<wire::cast<worker_ended>, wire::cast<connected>, wire::cast<beat>,
                                     wire::cast<greet_again>, wire::cast<leave>>;

// The newest exits are told on every connection: whoever lost one with the connection, or was started since,
// hears of it. To the coordinator a second telling means nothing.
inline constexpr std::size_t exits_kept = 64;

struct node_options {
  node_hello hello;
  endpoint coordinator;
  tls::identity_ptr identity;  // null: a cluster without certificates
  // These are called on the actor's thread and may not block.
  std::function<std::uint32_t()> workers_alive;
  std::function<void(const command&)> obey;
  std::function<void(const std::string& why)> refused;  // the coordinator will never take this agent
};

struct node_state {
  static inline const char* name = "node";
  node_options options;
  wire::coordinator_actor coordinator;
  bool is_accepted = false;
  std::uint32_t connection = 0;  // counts them
  std::chrono::milliseconds heartbeat{};
  term_number term;  // highest seen
  std::uint64_t refused_orders = 0;
  std::deque<perdura::child_exit> exits;
  std::optional<leave> leaving;  // told on each connection
  std::unique_ptr<runtime::connect_lane> lane;
};

node_actor::behavior_type agent(runtime::hardened<node_actor, node_state>* self, node_options options);

}  // namespace perdura::worker::node
