// CAF's middleman with limits: CAF 0.17 allocates whatever a connection's 32-byte header announces, up to 4
// GiB, before it knows who is there, and passes on what one peer sends to another, under any name. And with
// TLS where there is an identity.
#pragma once

#include <caf/io/middleman.hpp>
#include <caf/io/middleman_actor.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <cstdint>

namespace perdura::runtime {

// Largest message; tensors and checkpoints travel elsewhere. A recovery's plan of a model of 2^36 parameters
// fits.
inline constexpr std::uint32_t message_bytes_max = 64U << 20;
// Largest before the handshake is done.
inline constexpr std::uint32_t handshake_bytes_max = 64U << 10;

class bounded_middleman : public caf::io::middleman {
 public:
  explicit bounded_middleman(caf::actor_system& system) : middleman(system), backend_(&system) {}

  // What caf::actor_system_config::load<bounded_middleman>() calls.
  static caf::actor_system::module* make(caf::actor_system& system, caf::detail::type_list<>) {
    return new bounded_middleman(system);
  }

  void start() override;
  void stop() override;
  // Null without TLS.
  const caf::io::middleman_actor& tls_connector() const { return connector_; }
  caf::io::network::multiplexer& backend() override { return backend_; }

 private:
  caf::io::network::default_multiplexer backend_;
  caf::io::middleman_actor connector_;
};

}  // namespace perdura::runtime
