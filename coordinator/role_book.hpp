// Who may speak for which life, where the cluster has certificates: hands out challenges, checks what hellos
// prove, and remembers the connection that each life speaks on.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/node_id.hpp>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "actors/base/control.hpp"
#include "actors/tls/proof.hpp"
#include "actors/wire/codec.hpp"

namespace perdura::coordinator {

class role_book {
 public:
  // Above these the oldest is forgotten: its hello is refused, it asks again.
  static constexpr std::size_t challenges_max = 4096;
  static constexpr std::size_t lives_max = 200'000;

  role_book() = default;  // a cluster without certificates: everybody is believed
  explicit role_book(tls::identity_ptr identity) : identity_(std::move(identity)) {}

  result<role_challenge> challenge(const caf::actor_addr& from, const challenge_request& asked);
  // Errors (refused): no proof or a wrong one, a challenge that is used up, a life that another certificate
  // spoke for.
  template <class Hello>
  result<void> admit(const caf::actor_addr& from, const caf::node_id& at, tls::role as, const Hello& hello) {
    if (!identity_) return {};
    auto bare = hello;
    bare.proof = {};
    return admit(from, at, as, hello.who, hello.proof, wire::encode_message(bare));
  }
  // False: counted, and logged at the 1st, 2nd, 4th ...
  bool speaks_for(const caf::node_id& from, const incarnation& who);

 private:
  struct life {
    tls::subject who;
    caf::node_id at;
  };

  result<void> admit(const caf::actor_addr& from, const caf::node_id& at, tls::role as,
                     const incarnation& who, const role_proof& proof, const std::string& hello);
  // The challenge's nonce, empty if there is none: it is used up.
  std::string take_challenge(const caf::actor_addr& from);

  tls::identity_ptr identity_;
  std::deque<std::pair<caf::actor_addr, std::string>> challenges_;
  std::map<incarnation, life> lives_;
  std::deque<incarnation> oldest_;
  std::uint64_t unproven_ = 0;
};

}  // namespace perdura::coordinator
