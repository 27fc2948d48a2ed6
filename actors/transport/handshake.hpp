// Who speaks on a new connection, decided without I/O. The dialer says hello, the acceptor proves that it is
// the incarnation asked for and knows the cluster's cookie, the dialer proves the same of itself, the
// acceptor welcomes.
#pragma once

#include <optional>
#include <string>

#include "actors/transport/wire.hpp"

namespace perdura::transport {

class handshake {
 public:
  // What a greeting leads to: a reply to be sent, and perhaps the end, good or bad.
  struct step {
    std::optional<greeting> reply;
    bool done = false;
    std::string refused;  // why, when not empty: send the reply, then close
  };

  static handshake of_dialer(incarnation self, incarnation peer, std::string cookie, nonce fresh);
  static handshake of_acceptor(incarnation self, std::string cookie, nonce fresh);

  greeting hello() const { return make(greeting_kind::hello); }
  // The dialer is done when it is welcome. The acceptor is done when it knows whom it speaks to; it sends
  // `welcome` when the link may be used.
  step receive(const greeting& g);
  greeting welcome() const { return make(greeting_kind::welcome); }
  const incarnation& peer() const { return peer_; }
  bool is_dialer() const { return dials_; }

 private:
  handshake(incarnation self, incarnation peer, std::string cookie, nonce fresh, bool dials);

  greeting make(greeting_kind kind) const;
  step refuse(refusal_reason reason, std::string why) const;
  step on_hello(const greeting& g);
  step on_challenge(const greeting& g);
  step on_proof(const greeting& g);
  digest proof_of(bool dialer) const;

  incarnation self_;
  incarnation peer_;
  std::string cookie_;
  nonce mine_;
  nonce theirs_{};
  bool dials_;
  greeting_kind awaited_;
};

}  // namespace perdura::transport
