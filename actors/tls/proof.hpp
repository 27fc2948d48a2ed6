// Roles over CAF, which shows nobody its peer's certificate: each side signs what the other chose at random,
// and what it says of itself.
#pragma once

#include <string>

#include "actors/base/control.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::tls {

inline constexpr std::size_t nonce_bytes = 32;
std::string fresh_nonce();

// What a hello's proof signs. `hello`: the message's bytes, its proof left empty.
std::string hello_text(const incarnation& who, const std::string& nonce, const std::string& hello);
// What a coordinator's challenge signs.
std::string challenge_text(const challenge_request& asked, const std::string& nonce);

role_proof prove(const identity& self, const std::string& text);
// Who has signed. Errors (refused): a certificate that our CA did not issue, or out of its time, another
// role, another text.
result<subject> check(const role_proof& proof, role expected, const std::string& text, const identity& self);

}  // namespace perdura::tls
