#include "coordinator/coordinator_actor.hpp"

#include "actors/base/log.hpp"
#include "actors/runtime/connect_lane.hpp"
#include "actors/wire/codec.hpp"

namespace perdura::coordinator {

namespace {

using self_type = runtime::hardened<coordinator_actor, coordinator_state>;
using namespace std::chrono_literals;

constexpr auto tick_interval = 50ms;
constexpr auto probe_timeout = 300ms;
constexpr std::size_t probes_max = 4096;

time_point now() { return std::chrono::steady_clock::now(); }

// The actor that speaks for a worker or node changes with each connection; what the last one had to say is
// over.
void remember(self_type* self, std::map<incarnation, caf::strong_actor_ptr>& speakers,
              const incarnation& who) {
  auto& speaker = speakers[who];
  const auto sender = self->current_sender();
  if (speaker == sender) return;
  speaker = sender;
  self->monitor(speaker);
}

template <class Hello>
caf::result<welcome> greet(self_type* self, std::map<incarnation, caf::strong_actor_ptr>& speakers,
                           const Hello& hello) {
  if (const auto ok = wire::check_release(hello.protocol, hello.type_table, hello.name); !ok)
    return wire::to_caf(ok.failure());
  constexpr auto as = std::is_same_v<Hello, worker_hello> ? tls::role::worker : tls::role::node;
  const auto& sender = self->current_sender();
  if (!sender) return wire::to_caf({errc::refused, "a hello without a sender"});
  const auto from = caf::actor_cast<caf::actor_addr>(sender);
  if (const auto proven = self->state.roles.admit(from, sender->node(), as, hello); !proven) {
    log::warn("refused the hello of " + hello.name + " (life " + short_name(hello.who) +
              "): " + proven.failure().message);
    return wire::to_caf(proven.failure());
  }
  remember(self, speakers, hello.who);
  auto answer = self->state.shell->greet(hello, now());
  if (!answer) return wire::to_caf(answer.failure());
  return *answer;
}

caf::result<role_challenge> challenge(self_type* self, const challenge_request& asked) {
  auto given = self->state.roles.challenge(caf::actor_cast<caf::actor_addr>(self->current_sender()), asked);
  if (!given) return wire::to_caf(given.failure());
  return std::move(*given);
}

incarnation who_of(const worker_report& r) {
  return std::visit([](const auto& m) { return m.who; }, r.message);
}

// Whoever has not proved to be `who` is not heard.
bool speaks_for(self_type* self, const incarnation& who) {
  const auto& sender = self->current_sender();
  return self->state.roles.speaks_for(sender ? sender->node() : caf::node_id{}, who);
}

void on_down(self_type* self, const caf::down_msg& down) {
  auto& s = self->state;
  const auto forget = [&](auto& speakers, const auto& tell) {
    for (auto it = speakers.begin(); it != speakers.end(); ++it)
      if (it->second && it->second->address() == down.source) {
        const auto who = it->first;
        speakers.erase(it);
        return tell(who);
      }
  };
  forget(s.workers, [&](const incarnation& who) { s.shell->worker_disconnected(who); });
  forget(s.nodes, [&](const incarnation& who) { s.shell->node_disconnected(who, now()); });
}

}  // namespace

prober::prober(report done) : done_(std::move(done)), thread_([this] { work(); }) {}

prober::~prober() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void prober::ask(const incarnation& who, const endpoint& at) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= probes_max) return;  // its lease will tell
    waiting_.emplace_back(who, at);
  }
  changed_.notify_one();
}

void prober::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const auto [who, at] = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const auto probed = runtime::probe_tcp(at, probe_timeout);
    // No answer in time proves nothing: only a closed port does.
    done_(who, probed.has_value() || probed.failure().code == errc::timeout);
    lock.lock();
  }
}

coordinator_actor::behavior_type coordinator(self_type* self,
                                             std::shared_ptr<coordinator_actor_options> options) {
  runtime::harden(self);
  const auto handle = caf::actor_cast<caf::actor>(self);
  auto& state = self->state;
  state.roles = role_book(options->identity);
  surroundings around;
  around.post = [handle](std::function<void(coordinator_shell&)> what) {
    caf::anon_send(handle, here{std::move(what)});
  };
  around.send = [self](const order_envelope& o) {
    const auto w = self->state.workers.find(o.to);
    if (w != self->state.workers.end()) self->send(caf::actor_cast<wire::worker_control_actor>(w->second), o);
  };
  around.send_node = [self](const node_order& o) {
    const auto n = self->state.nodes.find(o.to);
    if (n != self->state.nodes.end()) self->send(caf::actor_cast<wire::node_control_actor>(n->second), o);
  };
  state.probes = std::make_unique<prober>([handle](const incarnation& who, bool answers) {
    caf::anon_send(handle, here{[who, answers](coordinator_shell& c) { c.probed(who, answers, now()); }});
  });
  around.probe = [self](const incarnation& who, const endpoint& at) { self->state.probes->ask(who, at); };
  around.events_grew = options->events_grew;
  around.end = options->end;
  state.shell = std::make_unique<coordinator_shell>(options->shell, std::move(options->memory),
                                                    std::move(options->keeper), std::move(around));
  if (const auto begun = state.shell->begin(now()); !begun) options->failed(begun.failure());
  self->set_down_handler([self](const caf::down_msg& down) { on_down(self, down); });
  self->delayed_send(self, tick_interval, tick{});
  return {
      [self](const worker_hello& h) { return greet(self, self->state.workers, h); },
      [self](const worker_report& r) {
        if (speaks_for(self, who_of(r))) self->state.shell->report(r, now());
      },
      [self](const heartbeat& h) {
        if (speaks_for(self, h.who)) self->state.shell->beat(h, now());
      },
      [self](const node_hello& h) { return greet(self, self->state.nodes, h); },
      [self](const node_heartbeat& h) {
        if (speaks_for(self, h.who)) self->state.shell->beat(h, now());
      },
      [self](const child_exit& e) {
        if (speaks_for(self, e.node)) self->state.shell->child_ended(e, now());
      },
      [self](const node_notice& n) {
        if (speaks_for(self, n.who)) self->state.shell->notice(n, now());
      },
      [self](const challenge_request& r) { return challenge(self, r); },
      [self](const here& h) { h.what(*self->state.shell); },
      [self](const tick&) {
        self->state.shell->tick(now());
        self->delayed_send(self, tick_interval, tick{});
      },
  };
}

}  // namespace perdura::coordinator
