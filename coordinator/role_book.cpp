#include "coordinator/role_book.hpp"

#include <algorithm>
#include <bit>

#include "actors/base/log.hpp"

namespace perdura::coordinator {

result<role_challenge> role_book::challenge(const caf::actor_addr& from, const challenge_request& asked) {
  if (!identity_)
    return error{errc::refused, "this coordinator has no certificates; set tls_folder for it, or nowhere"};
  if (asked.nonce.size() != tls::nonce_bytes)
    return error{errc::invalid_argument, "a challenge takes a nonce of 32 bytes"};
  static_cast<void>(take_challenge(from));
  if (challenges_.size() == challenges_max) challenges_.pop_front();
  auto nonce = tls::fresh_nonce();
  challenges_.emplace_back(from, nonce);
  auto proof = tls::prove(*identity_, tls::challenge_text(asked, nonce));
  return role_challenge{std::move(nonce), std::move(proof)};
}

std::string role_book::take_challenge(const caf::actor_addr& from) {
  const auto at = std::find_if(challenges_.begin(), challenges_.end(),
                               [&](const auto& given) { return given.first == from; });
  if (at == challenges_.end()) return {};
  auto nonce = std::move(at->second);
  challenges_.erase(at);
  return nonce;
}

result<void> role_book::admit(const caf::actor_addr& from, const caf::node_id& node, tls::role as,
                              const incarnation& who, const role_proof& proof, const std::string& hello) {
  const auto nonce = take_challenge(from);
  if (nonce.empty() && !proof.certificate.empty())
    return error{errc::unavailable, "its challenge is used up; ask for another"};
  const auto holder = tls::check(proof, as, tls::hello_text(who, nonce, hello), *identity_);
  if (!holder) return holder.failure();
  const auto [at, is_new] = lives_.try_emplace(who, life{*holder, node});
  if (!is_new && at->second.who != *holder)
    return error{errc::refused, "the certificate of " + to_string(at->second.who) +
                                    " has spoken for this life, and now that of " + to_string(*holder)};
  at->second.at = node;
  if (is_new) oldest_.push_back(who);
  if (lives_.size() > lives_max) {
    lives_.erase(oldest_.front());
    oldest_.pop_front();
  }
  return {};
}

bool role_book::speaks_for(const caf::node_id& from, const incarnation& who) {
  if (!identity_) return true;
  const auto life = lives_.find(who);
  if (from && life != lives_.end() && life->second.at == from) return true;
  if (std::has_single_bit(++unproven_))
    log::warn("a message in the name of life " + short_name(who) +
              " is dropped: its sender has not proved that it may (" + std::to_string(unproven_) +
              " so far)");
  return false;
}

}  // namespace perdura::coordinator
