// How every process of the cluster runs CAF: few threads that sleep when idle, the middleman, heartbeats
// between processes, no remote spawn and no remote configuration, TLS where the cluster has certificates and
// loopback alone where it has none.
#pragma once

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/middleman.hpp>
#include <cstdint>
#include <string>

#include "actors/base/config.hpp"
#include "actors/base/control.hpp"
#include "actors/base/result.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::runtime {

// Work-stealing, CAF's default, burns 16% of an idle core; sharing 0.3%.
inline constexpr std::size_t scheduler_threads = 2;
// CAF's own heartbeats on a connection; a connection silent for this long is closed, as if the peer had died.
// Our lease decides about membership, this only frees what a vanished machine held.
inline constexpr std::chrono::milliseconds connection_heartbeat{500};
inline constexpr std::chrono::milliseconds connection_timeout{10'000};

class system_config : public caf::actor_system_config {
 public:
  explicit system_config(tls::identity_ptr identity = nullptr);
  const tls::identity_ptr& identity() const { return identity_; }

 private:
  tls::identity_ptr identity_;
};

// An actor system that peers cannot spawn into or configure.
class actor_process {
 public:
  // All connections are TLS, both sides with certificates, where an identity is given.
  explicit actor_process(tls::identity_ptr identity = nullptr);
  caf::actor_system& system() { return system_; }
  const system_config& config() const { return config_; }

 private:
  system_config config_;
  caf::actor_system system_;
};

// Takes away what lets a peer spawn actors and set options here. Done by actor_process; for tests' own
// systems.
void refuse_remote_control(caf::actor_system& system);

// Whom to ask for connections and ports: CAF's own, or ours for TLS.
bool has_tls(caf::actor_system& system);
caf::io::middleman_actor connector(caf::actor_system& system);

// Gives the port, which the operating system chooses if 0. Waits without a timeout on CAF's I/O thread, for
// milliseconds: call it from main, not from a scheduled actor.
result<std::uint16_t> publish(caf::actor_system& system, const caf::strong_actor_ptr& actor,
                              std::set<std::string> interface, const endpoint& at);

template <class Handle>
result<std::uint16_t> publish(caf::actor_system& system, const Handle& actor, const endpoint& at) {
  return publish(system, caf::actor_cast<caf::strong_actor_ptr>(actor),
                 system.message_types(caf::detail::type_list<Handle>{}), at);
}

}  // namespace perdura::runtime
