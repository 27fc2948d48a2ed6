// CAF's connections over TLS. CAF brings its own (caf_openssl), which cannot be used: it leaves OpenSSL's
// errors of a connection that failed in the thread's queue, where the next one that waits for bytes takes
// them for its own and is closed, so that one bad client, or a bare connect and close, ends all connections;
// it spins while a client that has connected says nothing; and it shows nobody the peer's certificate.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_system.hpp>
#include <caf/io/middleman_actor.hpp>

#include "actors/tls/identity.hpp"

namespace perdura::runtime {

// Does what CAF's middleman actor does. We connect to coordinators alone, and let in nodes, workers and
// gateways; whoever is turned away is named in the log.
caf::io::middleman_actor make_tls_connector(caf::actor_system& system, const tls::identity& self,
                                            const caf::actor& broker);

}  // namespace perdura::runtime
