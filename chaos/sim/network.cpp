#include "chaos/sim/world.hpp"

namespace perdura::sim {

// Dialled again and again until it can be: both ways are needed for that.
void world::connect_link(std::uint32_t a, std::uint32_t b) {
  if (a > b) std::swap(a, b);
  const auto low = live_on(a), high = live_on(b);
  if (!low || !high) return;
  auto& l = link_of(a, b);
  if (l.up) return;
  const auto silent = std::max(l.way[0].silent_until, l.way[1].silent_until);
  if (silent > clock_)
    return at(silent + l.way[0].rng.between(100, 5'000), [this, a, b] { connect_link(a, b); });
  l.up = true;
  ++l.session;
  l.end[0] = *low;
  l.end[1] = *high;
  const auto session = l.session;
  for (auto& way : l.way) {
    way.sent = way.arrived = way.sent_before_silence = 0;
    way.cutoff = ~0ULL;
  }
  // A process may see the link a little before the other; frames never arrive before it is seen.
  for (std::size_t i = 0; i < 2; ++i) {
    auto& incoming = l.way[1 - i];
    incoming.last = std::max(incoming.last, clock_ + incoming.rng.between(10, 500));
    on_process(l.end[i], incoming.last, [this, me = l.end[i], peer = l.end[1 - i], session, &l] {
      if (l.session != session || !l.up) return;
      processes_[me]->linked[peer] = session;
      processes_[me]->logic->link_up(processes_[peer]->id);
    });
  }
}

void world::break_link(std::uint32_t a, std::uint32_t b) {
  auto& l = link_of(a, b);
  if (!l.up) return;
  const auto low = l.way[1].rng.between(10, 2'000);
  const auto high = l.way[0].rng.between(10, 2'000);
  sever(l, low, high, true);
}

// Each end notices in its own time; what was under way arrives up to a random frame.
void world::sever(pair_link& l, micros notice_low, micros notice_high, bool reconnect) {
  if (!l.up) return;
  l.up = false;
  micros both_down = clock_;
  for (std::size_t i = 0; i < 2; ++i) {
    auto& incoming = l.way[1 - i];
    incoming.cutoff = incoming.arrived + static_cast<std::uint64_t>(incoming.rng.between(
                                             0, static_cast<micros>(incoming.sent - incoming.arrived)));
    // A frame that silence holds back does not hold back the break.
    const auto notice = clock_ + (i == 0 ? notice_low : notice_high);
    if (incoming.silent_until > clock_)
      incoming.cutoff = std::min(incoming.cutoff, incoming.sent_before_silence);
    incoming.last = incoming.silent_until > clock_ ? notice : std::max(incoming.last, notice);
    both_down = std::max(both_down, incoming.last);
    on_process(l.end[i], incoming.last, [this, me = l.end[i], peer = l.end[1 - i], session = l.session] {
      auto& known = processes_[me]->linked;
      if (const auto at = known.find(peer); at != known.end() && at->second == session) known.erase(at);
      processes_[me]->logic->link_down(processes_[peer]->id, "the link broke");
    });
  }
  if (!reconnect) return;
  at(both_down + l.way[0].rng.between(100, 20'000),
     [this, a = processes_[l.end[0]]->seat, b = processes_[l.end[1]]->seat] { connect_link(a, b); });
}

void world::send_frame(std::size_t from, const incarnation& to, frame f) {
  const auto target = index_of(to);
  auto& me = *processes_[from];
  // Sent on the session that the sender knows: nothing slips into one that it has not heard of.
  const auto known = me.linked.find(target);
  if (known == me.linked.end()) return;
  const auto other = processes_[target]->seat;
  auto& l = link_of(me.seat, other);
  if (known->second != l.session || !l.up || !processes_[target]->alive) return;
  auto& way = l.way[me.seat < other ? 0 : 1];
  const auto number = ++way.sent;
  const auto delay = static_cast<micros>(static_cast<double>(way.rng.between(20, 400)) * way.slowness);
  way.last = std::max(way.last, std::max(clock_, way.silent_until) + delay);
  on_process(target, way.last,
             [this, target, number, session = l.session, &l, &way, f = std::move(f)]() mutable {
               if (l.session != session || number > way.cutoff) return;
               way.arrived = number;
               processes_[target]->logic->received(std::move(f));
             });
}

// ---- control connections

void world::connect_control(std::size_t p) {
  auto& w = *processes_[p];
  auto* c = newest_coordinator();
  if (!w.alive || !c || (w.control && w.control->open)) return;
  auto& seat = seats_[w.seat];
  const auto silent = std::max(seat.up_silent_until, seat.down_silent_until);
  if (silent > clock_) return at(silent + seat.rng.between(100, 5'000), [this, p] { connect_control(p); });
  w.control = std::make_shared<connection>();
  w.control->with = c;
  on_process(p, clock_ + seat.rng.between(50, 1'000), [this, p, on = w.control] {
    auto& me = *processes_[p];
    if (!on->open || me.control != on) return;
    auto hello = me.logic->greeting();
    hello.name = "w" + std::to_string(me.seat);
    hello.node = {1, me.seat + 1U};
    hello.numeric_class = 7;
    tell_coordinator(p, std::move(hello));
    me.logic->coordinator_connected();
  });
}

void world::break_control(std::size_t p) {
  auto& w = *processes_[p];
  if (!w.control || !w.control->open) return;
  w.control->open = false;
  w.control->lost = true;
  at(clock_ + seats_[w.seat].rng.between(500, 20'000), [this, p] { connect_control(p); });
}

// What a process said before it died still arrives; what a broken connection carried does not.
void world::tell_coordinator(std::size_t p, worker_message m) {
  auto& w = *processes_[p];
  if (!w.control || !w.control->open) return;
  auto& seat = seats_[w.seat];
  auto& on = *w.control;
  on.last_up = std::max(on.last_up, std::max(clock_, seat.up_silent_until) + seat.rng.between(30, 600));
  at(on.last_up, [this, p, on = w.control, m = std::move(m)]() mutable {
    if (on->lost || !on->with->alive) return;
    on->with->arrived_from[processes_[p]->id] = clock_;
    task hears = [this, c = on->with, m = std::move(m)] { hear(*c, m); };
    deliver(on->with, hears);
  });
}

void world::tell_worker(coordinator_process& c, const incarnation& to, coordinator_order o) {
  const auto p = index_of(to);
  auto& w = *processes_[p];
  if (!w.control || !w.control->open || w.control->with != &c) return;
  auto& seat = seats_[w.seat];
  auto& on = *w.control;
  on.last_down = std::max(on.last_down, std::max(clock_, seat.down_silent_until) + seat.rng.between(30, 600));
  order_envelope envelope{c.term, to, std::move(o)};
  at(on.last_down, [this, p, on = w.control, envelope = std::move(envelope)] {
    if (on->lost) return;
    auto target = p;
    // An address may have a new owner by now; the order says whom it was meant for.
    if (!processes_[p]->alive) target = seats_[processes_[p]->seat].current;
    task obeys = [this, target, envelope] { obey(target, envelope); };
    deliver(processes_[target].get(), obeys);
  });
}

// Of two coordinators the newer one is obeyed, whatever arrives last.
void world::obey(std::size_t p, const order_envelope& o) {
  auto& w = *processes_[p];
  const auto before = w.out.size();
  w.logic->order(o);
  if (o.term < w.newest_term && w.out.size() > before) fail("a worker did what an older term said");
  if (o.to == w.id) w.newest_term = std::max(w.newest_term, o.term);
}

}  // namespace perdura::sim
