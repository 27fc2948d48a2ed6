// Links over TCP, with a thread of their own for all I/O and all events.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/tls/identity.hpp"
#include "actors/transport/link.hpp"

namespace perdura::transport {

struct tcp_options {
  incarnation self;
  std::string host = "127.0.0.1";  // loopback, or with `tls` any address of this machine that peers can reach
  std::uint16_t port = 0;          // 0: any that is free
  tls::identity_ptr tls;           // a worker's; links are then TLS, and only workers are let in
  std::string cookie;              // the cluster's secret; both sides of a link prove that they know it
  std::size_t send_queue_bytes = 64U << 20;  // of each link
  std::chrono::milliseconds handshake_timeout{2000};
  std::chrono::milliseconds parking_timeout{5000};  // how long a known but not yet named peer waits
  // Silence of a machine, or of a reader for whom bytes wait, that breaks a link; 0: never. Leases
  // notice sooner that a machine is gone; this is for a path between two that both live.
  std::chrono::milliseconds vanish_timeout{4000};
  std::chrono::milliseconds redial_first{5};
  std::chrono::milliseconds redial_max{500};
  // Incoming connections that are no links yet; above these the oldest is closed.
  std::size_t handshakes_max = 64;
  std::size_t parked_max = 64;
};

inline constexpr std::size_t peers_max = 4096;

// Listens on return; `events` may come before. Errors: a host that is refused or invalid, a port that is
// taken, an option out of range.
result<std::unique_ptr<links>> make_tcp_links(tcp_options options, link_events events);

}  // namespace perdura::transport
