#include "worker/node/node_actor.hpp"

#include <algorithm>

#include "actors/base/log.hpp"
#include "actors/runtime/introduce.hpp"
#include "actors/runtime/process.hpp"
#include "actors/wire/codec.hpp"

namespace perdura::worker::node {
namespace {

using namespace std::chrono_literals;
using self_type = runtime::hardened<node_actor, node_state>;

constexpr auto hello_timeout = 2s;
// Before a hello that was not taken is repeated on the same connection: a coordinator just started waits out
// a lease.
constexpr auto hello_pause = 200ms;
constexpr auto heartbeat_least = 10ms;

// With the time left now: clocks of two machines need not agree.
void give_notice(self_type* self) {
  auto& s = self->state;
  if (!s.leaving || !s.is_accepted) return;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(s.leaving->deadline - std::chrono::steady_clock::now());
  self->send(s.coordinator, node_notice{s.options.hello.who,
                                        static_cast<std::uint32_t>(std::max<std::int64_t>(0, left.count())),
                                        s.leaving->why});
}

void on_leave(self_type* self, const leave& l) {
  auto& s = self->state;
  s.options.hello.going = true;
  s.leaving = l;
  give_notice(self);
}

void on_welcome(self_type* self, const welcome& w) {
  auto& s = self->state;
  if (w.term < s.term) {
    log::warn("a coordinator of term " + to_string(w.term) + " answers, but term " + to_string(s.term) +
              " has given orders; it is asked again in case it ends");
    self->delayed_send(self, hello_pause, greet_again{s.connection});
    return;
  }
  log::info("joined the coordinator's cluster, term " + to_string(w.term));
  s.term = w.term;
  s.is_accepted = true;
  s.heartbeat =
      std::max<std::chrono::milliseconds>(std::chrono::milliseconds(w.heartbeat_ms), heartbeat_least);
  for (const auto& e : s.exits) self->send(s.coordinator, e);
  give_notice(self);
  self->send(self, beat{s.connection});
}

void on_hello_failed(self_type* self, const error& why) {
  auto& s = self->state;
  if (why.code == errc::refused || why.code == errc::version_mismatch) return s.options.refused(why.message);
  log::warn("the coordinator did not take the hello, it is repeated: " + why.message);
  self->delayed_send(self, hello_pause, greet_again{s.connection});
}

void say_hello(self_type* self) {
  auto& s = self->state;
  const auto connection = s.connection;
  runtime::introduce(
      self, s.coordinator, s.options.identity, s.options.hello, hello_timeout,
      [self, connection](const welcome& w) {
        if (self->state.connection == connection) on_welcome(self, w);
      },
      [self, connection](const error& e) {
        if (self->state.connection == connection) on_hello_failed(self, e);
      });
}

void on_connected(self_type* self, const caf::strong_actor_ptr& coordinator) {
  auto& s = self->state;
  ++s.connection;
  s.coordinator = caf::actor_cast<wire::coordinator_actor>(coordinator);
  self->monitor(s.coordinator);
  say_hello(self);
}

void on_down(self_type* self, const caf::down_msg& down) {
  auto& s = self->state;
  if (!s.coordinator || down.source != s.coordinator.address()) return;
  log::warn("the connection to the coordinator broke; the workers go on");
  ++s.connection;
  s.coordinator = nullptr;
  s.is_accepted = false;
  s.lane->connect();
}

void on_order(self_type* self, const node_order& o) {
  auto& s = self->state;
  std::string flaw;
  if (o.to != s.options.hello.who) flaw = "it is for the agent's life " + short_name(o.to);
  if (o.term < s.term) flaw = "term " + to_string(o.term) + " is over, " + to_string(s.term) + " has begun";
  if (!flaw.empty()) {
    ++s.refused_orders;
    log::warn("an order is refused (" + std::to_string(s.refused_orders) + " so far): " + flaw);
    return;
  }
  s.term = o.term;
  s.options.obey(std::visit([](const auto& order) { return command(order); }, o.order));
}

void on_exit(self_type* self, perdura::child_exit e) {
  auto& s = self->state;
  if (s.is_accepted) self->send(s.coordinator, e);
  if (s.exits.size() == exits_kept) s.exits.pop_front();
  s.exits.push_back(std::move(e));
}

void on_beat(self_type* self) {
  auto& s = self->state;
  self->send(s.coordinator,
             node_heartbeat{s.options.hello.who, s.options.workers_alive(), runtime::resident_bytes()});
  self->delayed_send(self, s.heartbeat, beat{s.connection});
}

}  // namespace

node_actor::behavior_type agent(self_type* self, node_options options) {
  runtime::harden(self);
  auto& state = self->state;
  state.options = std::move(options);
  state.options.hello.protocol = protocol_version;
  state.options.hello.type_table = wire::type_table_hash();
  auto& system = self->home_system();
  state.lane = std::make_unique<runtime::connect_lane>(
      system, runtime::interface_of<wire::coordinator_actor>(system), state.options.coordinator,
      runtime::back_off{},
      [handle = caf::actor_cast<caf::actor>(self), is_told = false](const auto& found) mutable {
        if (found) caf::anon_send(handle, connected{*found});
        // Once until it is there, not at each attempt.
        else if (!is_told)
          log::warn(found.failure().message + "; tried again until it answers");
        is_told = !found;
      });
  self->set_down_handler([self](const caf::down_msg& down) { on_down(self, down); });
  state.lane->connect();
  return {
      [self](const node_order& o) { on_order(self, o); },
      [self](const worker_ended& w) { on_exit(self, w.what); },
      [self](const connected& c) { on_connected(self, c.coordinator); },
      [self](const beat& b) {
        if (b.connection == self->state.connection) on_beat(self);
      },
      [self](const greet_again& g) {
        if (g.connection == self->state.connection) say_hello(self);
      },
      [self](const leave& l) { on_leave(self, l); },
  };
}

}  // namespace perdura::worker::node
