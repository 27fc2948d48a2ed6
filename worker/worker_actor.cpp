#include "worker/worker_actor.hpp"

#include "actors/base/log.hpp"
#include "actors/runtime/introduce.hpp"
#include "actors/runtime/process.hpp"
#include "actors/wire/codec.hpp"

namespace perdura::worker {

namespace {

using self_type = runtime::hardened<worker_actor, worker_state>;
using namespace std::chrono_literals;

constexpr auto hello_pause = 200ms;  // before one that was not taken is said again
constexpr std::size_t decided_kept = 256;
constexpr std::size_t decided_max = 100'000;  // while there is no coordinator

// On a thread of its own (detached), since the trainer starves all others on a busy machine.
caf::behavior heartbeats(caf::event_based_actor* self, wire::coordinator_actor to, incarnation who,
                         const progress* seen, std::chrono::milliseconds every) {
  self->delayed_send(self, every, std::uint32_t{0});
  return {[=](std::uint32_t) {
    heartbeat h;
    h.who = who;
    h.step = step_number(seen->step);
    h.phase = seen->phase;
    h.slots_done = seen->slots_done;
    h.slot_seconds = static_cast<double>(seen->slot_nanoseconds.load()) * 1e-9;
    h.resident_bytes = runtime::resident_bytes();
    self->send(to, h);
    self->delayed_send(self, every, std::uint32_t{0});
  }};
}

void say_hello(self_type* self, const std::function<void(const std::string&)>& stop) {
  auto& state = self->state;
  auto hello = state.shell->greeting();
  hello.type_table = wire::type_table_hash();
  const auto again = [self] {
    self->state.coordinator = nullptr;
    self->delayed_send(self, hello_pause, hello_again{});
  };
  runtime::introduce(
      self, state.coordinator, state.identity, std::move(hello), 2s,
      [self](const welcome& w) {
        auto& s = self->state;
        if (!s.coordinator) return;  // lost meanwhile
        s.accepted = true;
        const auto beat = self->spawn<caf::detached + caf::linked>(
            heartbeats, s.coordinator, s.shell->greeting().who, &s.shell->how_far(),
            std::chrono::milliseconds(w.heartbeat_ms));
        s.beat = caf::actor_cast<caf::actor>(beat);
        s.shell->welcomed();
        for (const auto& v : s.decided) self->send(s.coordinator, worker_report{v});
        while (s.decided.size() > decided_kept) s.decided.pop_front();
      },
      [stop, again](const error& why) {
        if (why.code == errc::refused || why.code == errc::version_mismatch) return stop(why.message);
        log::warn("the coordinator did not take the hello: " + why.message);
        again();
      });
}

}  // namespace

worker_actor::behavior_type worker(self_type* self, worker_actor_options options) {
  runtime::harden(self);
  const auto handle = caf::actor_cast<caf::actor>(self);
  worker_shell::surroundings around;
  around.post = [handle](std::function<void(worker_shell&)> what) {
    caf::anon_send(handle, here{std::move(what)});
  };
  around.post_later = [self, handle](std::chrono::nanoseconds pause,
                                     std::function<void(worker_shell&)> what) {
    caf::delayed_anon_send(handle, pause, here{std::move(what)});
  };
  around.tell = [self](worker_message m) {
    auto& s = self->state;
    if (const auto* r = std::get_if<job_ready>(&m); r && r->job != std::exchange(s.job, r->job))
      s.decided.clear();  // steps of another job
    if (const auto* v = std::get_if<verdict_report>(&m)) {
      s.decided.push_back(*v);
      // What was last said on a connection that breaks may not have arrived.
      if (s.decided.size() > (s.accepted ? decided_kept : decided_max)) s.decided.pop_front();
    }
    if (s.accepted) self->send(s.coordinator, worker_report{std::move(m)});
  };
  around.stop = options.stop;
  around.make_links = options.make_links;
  auto shell = worker_shell::make(options.shell, around);
  if (!shell) {
    options.stop(shell.failure().message);
    return worker_actor::behavior_type::make_empty_behavior();
  }
  auto& state = self->state;
  state.shell = std::move(*shell);
  state.identity = options.identity;
  state.connector = std::make_unique<runtime::connect_lane>(
      self->home_system(), runtime::interface_of<wire::coordinator_actor>(self->home_system()),
      options.coordinator, runtime::back_off{}, [handle](result<caf::strong_actor_ptr> found) {
        if (found) caf::anon_send(handle, coordinator_found{*found});
      });
  self->set_down_handler([self](const caf::down_msg& down) {
    auto& s = self->state;
    if (down.source != s.coordinator.address()) return;
    log::warn("the connection to the coordinator broke; training goes on");
    s.lose_coordinator();
    s.connector->connect();
  });
  state.connector->connect();
  return {
      [self](const order_envelope& o) { self->state.shell->order(o); },
      [self](const here& h) { h.what(*self->state.shell); },
      [self](const hello_again&) { self->state.connector->connect(); },
      [self, stop = options.stop](const coordinator_found& c) {
        self->state.coordinator = caf::actor_cast<wire::coordinator_actor>(c.who);
        self->monitor(self->state.coordinator);
        say_hello(self, stop);
      },
  };
}

}  // namespace perdura::worker
