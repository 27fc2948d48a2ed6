// Actors that no peer can take down. A long-lived actor is a function and a state struct, and starts so:
//
//   using self_type = runtime::hardened<wire::coordinator_actor, coordinator_state>;
//   wire::coordinator_actor::behavior_type coordinator(self_type* self, ...) {
//     runtime::harden(self);
//     ...
//
// Handlers that throw, errors, exits and messages that nobody expects are counted and logged, and the actor
// goes on. `end` is the only way to end one from outside; it works in this process alone.
#pragma once

#include <caf/actor.hpp>
#include <caf/actor_cast.hpp>
#include <caf/allowed_unsafe_message_type.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <exception>
#include <utility>

#include "actors/runtime/guard.hpp"
#include "actors/wire/compat.hpp"

namespace perdura::runtime {
// Not serialisable, so it never comes from another process.
struct end_request {};
}  // namespace perdura::runtime
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::runtime::end_request)

namespace perdura::runtime {

// State: default-constructible, or from a pointer to Base.
template <class State, class Base = caf::event_based_actor>
class hardened_actor : public caf::stateful_actor<State, Base> {
  using super = caf::stateful_actor<State, Base>;

 public:
  explicit hardened_actor(caf::actor_config& config) : super(config), guard_(*this) {}

  using super::consume;
  using super::enqueue;

  void enqueue(caf::mailbox_element_ptr element, caf::execution_unit* unit) override {
    if (guard_.admit(*element, this->home_system())) super::enqueue(std::move(element), unit);
  }

  caf::invoke_message_result consume(caf::mailbox_element& element) override {
    if (element.content().template match_elements<end_request>()) {
      this->quit();
      return caf::invoke_message_result::consumed;
    }
    const auto ticket = guard_.begin(element, this->home_system());
    const auto sender = element.sender;
    const auto id = element.mid;
    auto outcome = caf::invoke_message_result::consumed;
    try {
      outcome = super::consume(element);
    } catch (const std::exception& e) { survive(sender, id, e.what()); } catch (...) {
      survive(sender, id, "not a std::exception");
    }
    if (outcome != caf::invoke_message_result::skipped) guard_.finish(ticket);
    return outcome;
  }

  guard& watch() { return guard_; }

 private:
  void survive(const caf::strong_actor_ptr& sender, caf::message_id id, const char* what) {
    guard_.note(mischief::exception, this->name(), what);
    guard_.answer(sender, id, {errc::internal, std::string("the request failed: ") + what});
  }

  guard guard_;
};

// For a typed interface of actors/wire, or caf::actor.
template <class Interface, class State>
struct hardened_for {
  using type = hardened_actor<State, typename Interface::base>;
};
template <class State>
struct hardened_for<caf::actor, State> {
  using type = hardened_actor<State, caf::event_based_actor>;
};
template <class Interface, class State>
using hardened = typename hardened_for<Interface, State>::type;

// The handlers, in harden.cpp.
void harden(caf::scheduled_actor* self, guard& watch);

template <class State, class Base>
void harden(hardened_actor<State, Base>* self) {
  harden(self, self->watch());
}

// Ends a hardened actor of this process after what it has in its mailbox.
template <class Handle>
void end(const Handle& actor) {
  caf::anon_send(caf::actor_cast<caf::actor>(actor), end_request{});
}

}  // namespace perdura::runtime
