#include "chaos/sim/world.hpp"

namespace perdura::sim {

void world::connect_link(std::size_t a, std::size_t b) {
  if (!processes_[a]->alive || !processes_[b]->alive) return;
  auto& l = link_of(a, b);
  if (l.up) return;
  l.up = true;
  ++l.session;
  const auto session = l.session;
  for (auto& way : l.way) {
    way.sent = way.arrived = 0;
    way.cutoff = ~0ULL;
  }
  // A process may see the link a little before the other; frames never arrive before it is seen.
  for (const auto& [me, peer, way] : {std::tuple{a, b, b < a ? 0 : 1}, std::tuple{b, a, a < b ? 0 : 1}}) {
    auto& incoming = l.way[way];
    incoming.last = std::max(incoming.last, clock_ + random(10, 500));
    on_process(me, incoming.last, [this, me = me, peer = peer, session, &l] {
      if (l.session != session || !l.up) return;
      processes_[me]->linked[peer] = session;
      processes_[me]->logic->link_up(processes_[peer]->id);
    });
  }
}

void world::break_link(std::size_t a, std::size_t b, bool reconnect) {
  auto& l = link_of(a, b);
  if (!l.up) return;
  l.up = false;
  micros both_down = clock_;
  for (const auto& [me, peer, way] : {std::tuple{a, b, b < a ? 0 : 1}, std::tuple{b, a, a < b ? 0 : 1}}) {
    auto& incoming = l.way[way];
    incoming.cutoff = incoming.arrived + static_cast<std::uint64_t>(random(
                                             0, static_cast<micros>(incoming.sent - incoming.arrived)));
    incoming.last = std::max(incoming.last, clock_ + random(10, 2000));
    both_down = std::max(both_down, incoming.last);
    on_process(me, incoming.last, [this, me = me, peer = peer] {
      processes_[me]->linked.erase(peer);
      processes_[me]->logic->link_down(processes_[peer]->id, "the link broke");
    });
  }
  if (reconnect) at(both_down + random(100, 20000), [this, a, b] { connect_link(a, b); });
}

void world::send_frame(std::size_t from, const incarnation& to, frame f) {
  const auto target = index_of(to);
  auto& l = link_of(from, target);
  // Sent on the session that the sender knows: nothing slips into one that it has not heard of.
  const auto known = processes_[from]->linked.find(target);
  if (known == processes_[from]->linked.end() || known->second != l.session) return;
  if (!l.up || !processes_[target]->alive) return;
  auto& way = l.way[from < target ? 0 : 1];
  const auto number = ++way.sent;
  const auto session = l.session;
  way.last =
      std::max(way.last, clock_ + static_cast<micros>(static_cast<double>(random(20, 400)) * way.slowness));
  on_process(target, way.last, [this, target, number, session, &l, &way, f = std::move(f)]() mutable {
    if (l.session != session || number > way.cutoff) return;
    way.arrived = number;
    processes_[target]->logic->received(std::move(f));
  });
}

// ---- control connections
// -------------------------------------------------------------------------------------

void world::connect_control(std::size_t p) {
  auto& w = *processes_[p];
  if (!w.alive || w.connected || !coordinator_) return;
  w.connected = true;
  ++w.session;
  w.heard = clock_;
  on_process(p, clock_ + random(50, 1000), [this, p, session = w.session] {
    auto& me = *processes_[p];
    if (!me.connected || me.session != session) return;
    auto hello = me.logic->greeting();
    hello.name = "w" + std::to_string(p);
    hello.numeric_class = 7;
    tell_coordinator(p, std::move(hello));
    me.logic->coordinator_connected();
  });
}

void world::break_control(std::size_t p, bool reconnect) {
  auto& w = *processes_[p];
  if (!w.connected) return;
  w.connected = false;
  ++w.session;
  if (reconnect) at(clock_ + random(500, 20000), [this, p] { connect_control(p); });
}

void world::tell_coordinator(std::size_t p, worker_message m) {
  auto& w = *processes_[p];
  if (!w.connected) return;
  w.to_coordinator = std::max(w.to_coordinator, clock_ + random(30, 600));
  at(w.to_coordinator, [this, p, session = w.session, m = std::move(m)] {
    // What a process said before it died still arrives; what a broken connection carried does not.
    if (processes_[p]->session != session) return;
    with_coordinator([&](auto& c) { c.received(m, now()); });
  });
}

void world::tell_worker(const incarnation& to, coordinator_order o) {
  const auto p = index_of(to);
  auto& w = *processes_[p];
  if (!w.connected || !w.alive) return;
  w.from_coordinator = std::max(w.from_coordinator, clock_ + random(30, 600));
  order_envelope envelope{term_number(term_), to, std::move(o)};
  on_process(p, w.from_coordinator, [this, p, session = w.session, envelope = std::move(envelope)] {
    if (processes_[p]->session != session) return;
    processes_[p]->logic->order(envelope);
  });
}

}  // namespace perdura::sim
