#include "actors/wire/types.hpp"

#include <atomic>
#include <bit>
#include <caf/actor_system_config.hpp>
#include <caf/make_message.hpp>
#include <caf/message.hpp>

#include "actors/base/log.hpp"
#include "actors/wire/compat.hpp"

namespace perdura::wire {

namespace {
const caf::atom_value error_category = caf::atom("perdura");
std::atomic<std::uint64_t> unreadable{0};

errc to_errc(std::uint8_t code) {
  return code <= static_cast<std::uint8_t>(errc::internal) ? static_cast<errc>(code) : errc::internal;
}

std::string render(std::uint8_t code, caf::atom_value, const caf::message& context) {
  if (context.match_elements<std::string>()) return context.get_as<std::string>(0);
  return to_string(to_errc(code));
}
}  // namespace

template <class T>
bool accept_message(const std::string& bytes, T& into) {
  auto message = decode_message<T>(std::as_bytes(std::span(bytes)));
  if (message) {
    into = std::move(*message);
    return true;
  }
  // A peer can send any number of these: told at the 1st, 2nd, 4th, 8th ...
  const std::uint64_t count = ++unreadable;
  if (std::has_single_bit(count))
    log::warn(message.failure().message + "; dropped, " + std::to_string(count) + " so far");
  return false;
}

#define X(type) template bool accept_message(const std::string&, type&);
PERDURA_WIRE_MESSAGES(X)
#undef X

std::uint64_t unreadable_messages() { return unreadable; }

caf::error to_caf(const error& e) {
  return {static_cast<std::uint8_t>(e.code), error_category, caf::make_message(e.message)};
}

error from_caf(const caf::error& e, const caf::actor_system_config& config) {
  if (e.category() == error_category) return {to_errc(e.code()), render(e.code(), e.category(), e.context())};
  auto code = errc::internal;
  if (e == caf::sec::request_timeout)
    code = errc::timeout;
  else if (e == caf::sec::cannot_connect_to_node || e == caf::sec::request_receiver_down ||
           e == caf::exit_reason::remote_link_unreachable)
    code = errc::unavailable;
  return {code, config.render(e)};
}

void add_message_types(caf::actor_system_config& config) {
  config.add_message_types<caf::id_block::perdura>();
  config.add_error_category(error_category, render);
}

}  // namespace perdura::wire
