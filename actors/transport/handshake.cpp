#include "actors/transport/handshake.hpp"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <utility>

namespace perdura::transport {
namespace {

std::string versions(std::uint32_t transport, std::uint32_t protocol) {
  return "transport version " + std::to_string(transport) + " and protocol version " +
         std::to_string(protocol);
}

std::string version_clash(const greeting& g) {
  return "it speaks " + versions(g.transport, g.protocol) + ", this process " +
         versions(transport_version, protocol_version) + "; run the same build on both sides";
}

std::string words(refusal_reason reason, const greeting& g) {
  switch (reason) {
    case refusal_reason::version: return version_clash(g);
    case refusal_reason::wrong_incarnation: return "another process listens there now: " + short_name(g.from);
    case refusal_reason::wrong_cookie: return "it belongs to a cluster with another cookie";
    case refusal_reason::wrong_role: return "it says that it is the one that dials";
    case refusal_reason::none: break;
  }
  return "it gave no reason";
}

}  // namespace

handshake::handshake(incarnation self, incarnation peer, std::string cookie, nonce fresh, bool dials)
    : self_(self),
      peer_(peer),
      cookie_(std::move(cookie)),
      mine_(fresh),
      dials_(dials),
      awaited_(dials ? greeting_kind::challenge : greeting_kind::hello) {}

handshake handshake::of_dialer(incarnation self, incarnation peer, std::string cookie, nonce fresh) {
  return {self, peer, std::move(cookie), fresh, true};
}

handshake handshake::of_acceptor(incarnation self, std::string cookie, nonce fresh) {
  return {self, {}, std::move(cookie), fresh, false};
}

greeting handshake::make(greeting_kind kind) const {
  greeting g;
  g.kind = kind;
  g.from = self_;
  g.to = peer_;
  g.fresh = mine_;
  return g;
}

handshake::step handshake::refuse(refusal_reason reason, std::string why) const {
  step s;
  s.refused = std::move(why);
  if (!dials_) {
    s.reply = make(greeting_kind::refusal);
    s.reply->reason = reason;
  }
  return s;
}

handshake::step handshake::receive(const greeting& g) {
  if (g.transport != transport_version || g.protocol != protocol_version)
    return refuse(refusal_reason::version, version_clash(g));
  if (dials_ && g.kind == greeting_kind::refusal) return refuse(g.reason, words(g.reason, g));
  if (g.kind != awaited_) return refuse(refusal_reason::wrong_role, "its greeting is out of turn");
  switch (g.kind) {
    case greeting_kind::hello: return on_hello(g);
    case greeting_kind::challenge: return on_challenge(g);
    case greeting_kind::proof: return on_proof(g);
    case greeting_kind::welcome: return {.reply = {}, .done = true, .refused = {}};
    case greeting_kind::refusal: break;
  }
  return refuse(refusal_reason::none, "its greeting is out of turn");
}

handshake::step handshake::on_hello(const greeting& g) {
  if (g.to != self_)
    return refuse(refusal_reason::wrong_incarnation,
                  "it wants to reach " + short_name(g.to) + ", not this process");
  if (g.from.is_none() || !(g.from < self_))
    return refuse(refusal_reason::wrong_role,
                  "of two peers the lower incarnation dials, and it is " + short_name(g.from));
  peer_ = g.from;
  theirs_ = g.fresh;
  step s;
  s.reply = make(greeting_kind::challenge);
  s.reply->proof = proof_of(false);
  awaited_ = greeting_kind::proof;
  return s;
}

handshake::step handshake::on_challenge(const greeting& g) {
  if (g.from != peer_ || g.to != self_)
    return refuse(refusal_reason::wrong_incarnation,
                  "another process listens there now: " + short_name(g.from));
  theirs_ = g.fresh;
  const digest expected = proof_of(false);
  if (CRYPTO_memcmp(expected.data(), g.proof.data(), expected.size()) != 0)
    return refuse(refusal_reason::wrong_cookie, words(refusal_reason::wrong_cookie, g));
  step s;
  s.reply = make(greeting_kind::proof);
  s.reply->proof = proof_of(true);
  awaited_ = greeting_kind::welcome;
  return s;
}

handshake::step handshake::on_proof(const greeting& g) {
  const digest expected = proof_of(true);
  if (g.from != peer_ || g.to != self_ ||
      CRYPTO_memcmp(expected.data(), g.proof.data(), expected.size()) != 0)
    return refuse(refusal_reason::wrong_cookie, words(refusal_reason::wrong_cookie, g));
  return {.reply = {}, .done = true, .refused = {}};
}

// HMAC-SHA256 under the cookie over role, both incarnations and both nonces, the dialer's first: a proof is
// good for one connection and one side of it.
digest handshake::proof_of(bool dialer) const {
  greeting transcript;
  transcript.kind = dialer ? greeting_kind::proof : greeting_kind::challenge;
  transcript.from = dials_ ? self_ : peer_;
  transcript.to = dials_ ? peer_ : self_;
  transcript.fresh = dials_ ? mine_ : theirs_;
  const nonce& acceptors = dials_ ? theirs_ : mine_;
  std::copy(acceptors.begin(), acceptors.end(), transcript.proof.begin());
  const encoded_greeting text = encode(transcript);
  digest out{};
  unsigned int size = 0;
  const auto* made = HMAC(EVP_sha256(), cookie_.data(), static_cast<int>(cookie_.size()),
                          reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                          reinterpret_cast<unsigned char*>(out.data()), &size);
  PERDURA_CHECK(made != nullptr && size == out.size(), "HMAC-SHA256 gives 32 bytes");
  return out;
}

}  // namespace perdura::transport
