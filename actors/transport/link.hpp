// A link: an ordered, framed, authenticated connection between two incarnations. Links between survivors
// outlive membership changes; eras in the frames fence what is old, no rendezvous is repeated.
//
// `tcp_links` (Boost.Asio) is the real thing; `simulated_links` is one process with seeded delays, cuts and
// deaths.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/control.hpp"
#include "actors/base/result.hpp"

namespace perdura::transport {

// One message: a short head (encoded frame header) and a body that is sent from where it lies. A received
// body is aligned to body_alignment.
struct message {
  std::vector<std::byte> head;
  blob body;
};

inline constexpr std::size_t head_bytes_max = 1U << 20;
inline constexpr std::size_t body_bytes_max = 16U << 20;
// On the wire a message is cut into pieces of at most this size.
inline constexpr std::size_t piece_bytes_max = 256U << 10;
inline constexpr std::size_t body_alignment = 64;

enum class send_status : std::uint8_t { queued, would_block, not_connected };

// Called on the links' own thread, with no lock held; must return quickly. They may call send and set_peers,
// but not close. Each `up` is followed by one `down` of the same session, unless the links are closed before.
struct link_events {
  // A link to `peer` is up. `session` grows with each new connection to the same peer.
  std::function<void(incarnation peer, std::uint64_t session)> up;
  // It broke; nothing sent or queued on that session arrives any more beyond what already has.
  std::function<void(incarnation peer, std::uint64_t session, std::string why)> down;
  std::function<void(incarnation peer, std::uint64_t session, message)> received;
  // After would_block: there is room again.
  std::function<void(incarnation peer)> writable;
};

class links {
 public:
  // A sender that has not yet heard of a break would speak into the new connection: name the session to
  // prevent it.
  static constexpr std::uint64_t any_session = 0;

  virtual ~links() = default;
  // Where peers can dial.
  virtual endpoint local() const = 0;
  // Whom to keep links to. Of two peers the one with the lower incarnation dials, again and again with
  // back-off; links to peers no longer named are closed. Incoming links from peers not (yet) named wait,
  // bounded.
  virtual void set_peers(std::vector<peer> peers) = 0;
  // Never blocks; order is kept for each peer. The queue of a link is bounded (send_queue_bytes). `m` is
  // moved from only when it was queued.
  virtual send_status send(const incarnation& to, std::uint64_t session, message&& m) = 0;
  send_status send(const incarnation& to, message&& m) { return send(to, any_session, std::move(m)); }
  // Breaks all links; no event comes after it has returned. Idempotent.
  virtual void close() = 0;
};

}  // namespace perdura::transport
