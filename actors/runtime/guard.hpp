// Stands in front of an actor's mailbox. CAF 0.17 lets any peer end any actor that it can address (an exit
// message of reason `kill`, an error, a message that makes a handler throw) and fill its mailbox without
// bound; the guard drops, counts and logs all that.
#pragma once

#include <array>
#include <atomic>
#include <caf/abstract_actor.hpp>
#include <caf/mailbox_element.hpp>
#include <caf/node_id.hpp>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "actors/base/result.hpp"

namespace perdura::runtime {

enum class mischief : std::uint8_t {
  unexpected_message,  // no handler takes it
  unexpected_error,    // an error that answers no request
  unexpected_down,     // of an actor that nobody here watches
  exit_request,        // only `end` ends a hardened actor
  exception,           // a handler threw
  flood,               // more than pending_per_peer_max unread messages of one peer
  stream,              // CAF's streams are not used
};
inline constexpr std::size_t mischief_kinds = 7;
const char* to_string(mischief kind);

// Unread messages of one peer process; further ones are dropped, its requests answered with errc::exhausted.
// Senders without an address share one count. A worker has a few messages under way at most.
inline constexpr std::uint32_t pending_per_peer_max = 4096;

class guard {
 public:
  // Counts of one mailbox element, to be handed back when it has been read.
  struct ticket {
    bool counted = false;
    caf::node_id peer;
  };

  explicit guard(caf::abstract_actor& actor) : actor_(actor) {}

  // On the sender's thread: whether the element may enter the mailbox; if not, a request has been answered.
  bool admit(caf::mailbox_element& element, caf::actor_system& system);
  // On the actor's thread, around the reading of an element.
  ticket begin(const caf::mailbox_element& element, caf::actor_system& system) const;
  void finish(const ticket& t);

  // Answers if it was a request.
  void answer(const caf::strong_actor_ptr& sender, caf::message_id id, const error& e);

  // Counts; logs the 1st, 2nd, 4th, 8th ... of a kind. `name` is the actor's, for people.
  void note(mischief kind, std::string_view name, std::string_view detail);
  std::uint64_t count(mischief kind) const { return counts_[static_cast<std::size_t>(kind)]; }

 private:
  bool count_in(const caf::node_id& peer);

  caf::abstract_actor& actor_;
  std::array<std::atomic<std::uint64_t>, mischief_kinds> counts_{};
  std::mutex mutex_;
  std::map<caf::node_id, std::uint32_t> pending_;
};

}  // namespace perdura::runtime
