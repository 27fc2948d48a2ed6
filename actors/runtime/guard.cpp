#include "actors/runtime/guard.hpp"

#include <bit>
#include <caf/actor_system.hpp>
#include <caf/make_message.hpp>
#include <caf/system_messages.hpp>

#include "actors/base/log.hpp"
#include "actors/wire/compat.hpp"

namespace perdura::runtime {

namespace {
// Whether the element may have come from another process. A sender tells; without one, content that CAF could
// not have read from a connection is ours: its type has neither number nor registered name.
bool is_foreign(const caf::mailbox_element& element, const caf::abstract_actor& self,
                caf::actor_system& system) {
  if (element.sender != nullptr) return element.sender->node() != self.node();
  const auto& content = element.content();
  for (std::size_t i = 0; i < content.size(); ++i)
    if (content.type(i).first == 0 && system.types().portable_name(content.type(i)).empty()) return false;
  return true;
}
}  // namespace

const char* to_string(mischief kind) {
  switch (kind) {
    case mischief::unexpected_message: return "unexpected message";
    case mischief::unexpected_error: return "unexpected error";
    case mischief::unexpected_down: return "unexpected down message";
    case mischief::exit_request: return "exit message";
    case mischief::exception: return "exception in a handler";
    case mischief::flood: return "flood";
    case mischief::stream: return "stream message";
  }
  return "unknown";
}

bool guard::admit(caf::mailbox_element& element, caf::actor_system& system) {
  const auto& content = element.content();
  if (content.match_elements<caf::exit_msg>()) {
    note(mischief::exit_request, "actor", "ignored");
    return false;
  }
  if (content.match_elements<caf::open_stream_msg>() || content.match_elements<caf::upstream_msg>() ||
      content.match_elements<caf::downstream_msg>()) {
    note(mischief::stream, "actor", "ignored");
    return false;
  }
  if (!is_foreign(element, actor_, system)) return true;
  if (count_in(element.sender != nullptr ? element.sender->node() : caf::node_id{})) return true;
  note(mischief::flood, "actor", "a peer has too many unread messages; dropped");
  answer(element.sender, element.mid,
         {errc::exhausted, "too many unread messages of this process; wait for answers"});
  return false;
}

void guard::answer(const caf::strong_actor_ptr& sender, caf::message_id id, const error& e) {
  if (sender == nullptr || !id.is_request()) return;
  sender->enqueue(caf::strong_actor_ptr{actor_.ctrl()}, id.response_id(), caf::make_message(wire::to_caf(e)),
                  nullptr);
}

guard::ticket guard::begin(const caf::mailbox_element& element, caf::actor_system& system) const {
  if (!is_foreign(element, actor_, system)) return {};
  return {true, element.sender != nullptr ? element.sender->node() : caf::node_id{}};
}

void guard::finish(const ticket& t) {
  if (!t.counted) return;
  const std::lock_guard lock(mutex_);
  const auto found = pending_.find(t.peer);
  if (found != pending_.end() && --found->second == 0) pending_.erase(found);
}

bool guard::count_in(const caf::node_id& peer) {
  const std::lock_guard lock(mutex_);
  auto& pending = pending_[peer];
  if (pending >= pending_per_peer_max) return false;
  ++pending;
  return true;
}

void guard::note(mischief kind, std::string_view name, std::string_view detail) {
  const std::uint64_t count = ++counts_[static_cast<std::size_t>(kind)];
  if (!std::has_single_bit(count)) return;
  log::warn(std::string(name) + ": " + to_string(kind) + " (" + std::to_string(count) +
            " so far): " + std::string(detail));
}

}  // namespace perdura::runtime
