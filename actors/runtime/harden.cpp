#include "actors/runtime/harden.hpp"

#include <caf/message_view.hpp>
#include <caf/result.hpp>
#include <caf/scheduled_actor.hpp>
#include <caf/system_messages.hpp>

namespace perdura::runtime {

namespace {
// Types only: the content is a peer's and may be large or not for the log.
std::string type_names(const caf::type_erased_tuple& content, caf::actor_system& system) {
  std::string names = "(";
  for (std::size_t i = 0; i < content.size() && i < 4; ++i) {
    const auto& name = system.types().portable_name(content.type(i));
    if (i > 0) names += ", ";
    names += name.empty() ? "a local type" : name;
  }
  return names + ")";
}

caf::result<caf::message> refuse(caf::scheduled_actor* self, caf::message_view& view, guard& watch) {
  const auto content = view.move_content_to_message();
  watch.note(mischief::unexpected_message, self->name(), type_names(content, self->home_system()));
  // An error as answer to what is no request would kill a sender that is not hardened.
  if (!self->current_mailbox_element()->mid.is_request()) return caf::message{};
  return caf::make_error(caf::sec::unexpected_message);
}
}  // namespace

void harden(caf::scheduled_actor* self, guard& watch) {
  guard* w = &watch;
  self->set_default_handler(
      [w](caf::scheduled_actor* me, caf::message_view& view) { return refuse(me, view, *w); });
  self->set_error_handler([w](caf::scheduled_actor* me, caf::error& e) {
    w->note(mischief::unexpected_error, me->name(), me->home_system().render(e));
  });
  self->set_down_handler([w](caf::scheduled_actor* me, caf::down_msg&) {
    w->note(mischief::unexpected_down, me->name(), "no handler is set");
  });
  self->set_exit_handler([w](caf::scheduled_actor* me, caf::exit_msg&) {
    w->note(mischief::exit_request, me->name(), "ignored");
  });
  self->set_exception_handler([w](caf::scheduled_actor* me, std::exception_ptr&) -> caf::error {
    w->note(mischief::exception, me->name(), "outside of a handler");
    return caf::none;
  });
}

}  // namespace perdura::runtime
