// Who may say what to whom over CAF. Private messages of an actor (ticks, results of its threads) are not
// here: an implementation extends its interface with them.
#pragma once

#include "actors/wire/compat.hpp"
#include "actors/wire/types.hpp"

namespace perdura::wire {

// The coordinator, published on cluster_config::port.
using coordinator_actor = caf::typed_actor<
    // From a worker's control actor, on each connection; the sender is where orders go. Accepted: the
    // coordinator's term. Errors: version_mismatch (check_release), refused (fenced: end and come back as a
    // new incarnation), unavailable (still waiting out a lease after a restart: try again).
    rpc<welcome, worker_hello>,
    // From a worker, whatever the alternative. Nothing comes back: what the coordinator decides arrives as an
    // order. Reports of unknown or fenced incarnations are dropped and counted; fenced ones are told so.
    cast<worker_report>,
    // From a worker's heartbeat thread. Keeps its lease and tells the watchdog how far it is.
    cast<heartbeat>,
    // From a node agent's control actor, on each connection; the sender is where node orders go. Errors as
    // above.
    rpc<welcome, node_hello>,
    // From a node agent. Keeps the node's lease.
    cast<node_heartbeat>,
    // From a node agent: a worker process has ended. The surest and quickest notice of a death.
    cast<child_exit>,
    // From a node agent whose machine is about to go, on each connection. What comes back, when its workers
    // hold nothing any more, is an order to stop.
    cast<node_notice>,
    // From a worker or node agent, before its hello, where the cluster has certificates. Errors: refused (it
    // has none).
    rpc<role_challenge, challenge_request>>;

// In a worker; the sender of its hellos.
using worker_control_actor = caf::typed_actor<
    // From the coordinator. Refused and counted: a term lower than the highest seen, another incarnation's
    // envelope.
    cast<order_envelope>>;

// In a node agent; the sender of its hellos.
using node_control_actor = caf::typed_actor<
    // From the coordinator. Refused and counted as above.
    cast<node_order>>;

}  // namespace perdura::wire
