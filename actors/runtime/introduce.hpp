// A hello, with proof of role where the cluster has certificates: a challenge is asked for, in which the
// coordinator proves its own role, then the hello follows, signed.
#pragma once

#include <chrono>
#include <utility>

#include "actors/tls/proof.hpp"
#include "actors/wire/codec.hpp"
#include "actors/wire/interfaces.hpp"

namespace perdura::runtime {

// On the actor's thread. Welcomed: void(const welcome&); failed: void(const error&). Failure refused, too,
// where no coordinator of our cluster answers.
template <class Self, class Hello, class Welcomed, class Failed>
void introduce(Self* self, const wire::coordinator_actor& to, const tls::identity_ptr& identity, Hello hello,
               std::chrono::milliseconds timeout, Welcomed welcomed, Failed failed) {
  const auto not_taken = [self, failed](const caf::error& e) {
    failed(wire::from_caf(e, self->home_system().config()));
  };
  if (!identity) {
    self->request(to, timeout, std::move(hello)).then(welcomed, not_taken);
    return;
  }
  const challenge_request asked{hello.who, tls::fresh_nonce()};
  const auto sign = [=, hello = std::move(hello)](const role_challenge& c) {
    const auto coordinator =
        tls::check(c.coordinator, tls::role::coordinator, tls::challenge_text(asked, c.nonce), *identity);
    if (!coordinator)
      return failed(error{
          errc::refused, "what answers is no coordinator of this cluster: " + coordinator.failure().message});
    auto proven = hello;
    proven.proof = tls::prove(*identity, tls::hello_text(hello.who, c.nonce, wire::encode_message(hello)));
    self->request(to, timeout, std::move(proven)).then(welcomed, not_taken);
  };
  self->request(to, timeout, asked).then(sign, not_taken);
}

}  // namespace perdura::runtime
