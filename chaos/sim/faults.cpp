#include "chaos/sim/world.hpp"

namespace perdura::sim {

std::optional<std::size_t> world::live_on(std::uint32_t seat) const {
  if (seat >= seats_max || seats_[seat].lives == 0) return std::nullopt;
  const auto p = seats_[seat].current;
  return processes_[p]->alive ? std::optional(p) : std::nullopt;
}

void world::inject(const fault& f) {
  trace(std::string(to_string(f.kind)) + " " + std::to_string(f.a) + " " + std::to_string(f.b) + " " +
        std::to_string(f.lasts));
  auto* c = newest_coordinator();
  const auto p = live_on(f.a);
  switch (f.kind) {
    case fault_kind::kill:
      if (p) kill_process(*p, "fault");
      return;
    case fault_kind::vanish:
      if (p) kill_process(*p, "fault", true);
      return;
    case fault_kind::break_link:
      if (f.a != f.b && f.a < seats_max && f.b < seats_max) break_link(f.a, f.b);
      return;
    case fault_kind::break_control:
      if (p) break_control(*p);
      return;
    case fault_kind::crash_coordinator:
      if (c) crash_coordinator(*c, f.a == 1, f.lasts);
      return;
    case fault_kind::suspect:
      if (!p) return;
      return ask_coordinator(clock_,
                             [this, who = processes_[*p]->id](auto& c) { lose(c, who, "suspected"); });
    case fault_kind::snapshot:
      return ask_coordinator(clock_, [this](auto& to) { to.logic->snapshot_now(to.now(clock_)); });
    case fault_kind::join:
      if (f.a < seats_max && seats_[f.a].lives == 0) start_process(f.a);
      return;
    default: return inject_for_a_while(f);
  }
}

void world::inject_for_a_while(const fault& f) {
  auto* c = newest_coordinator();
  const auto p = live_on(f.a);
  switch (f.kind) {
    case fault_kind::silence_link:
      if (f.a != f.b && f.a < seats_max && f.b < seats_max) silence_link(f.a, f.b, f.lasts);
      return;
    case fault_kind::silence_control:
      if (f.a < seats_max) silence_control(f.a, f.b == 0, f.lasts);
      return;
    case fault_kind::partition: return separate(f.a, f.b == 1, f.lasts);
    case fault_kind::crash_at_effect: crash_trap_ = trap{f.a, f.b == 1, f.lasts}; return;
    case fault_kind::kill_at_switch: switch_trap_ = trap{f.a, false, f.lasts}; return;
    case fault_kind::take_over: return take_over(f.lasts);
    case fault_kind::stop_worker:
      if (p) stop(*processes_[*p], f.lasts);
      return;
    case fault_kind::stop_coordinator:
      if (c) stop(*c, f.lasts);
      return;
    case fault_kind::slow_disk:
      disk_.slow_until = clock_ + f.lasts;
      disk_.write_takes = f.a;
      return;
    case fault_kind::drain:
      if (p) drain_and_take_away(f, *p);
      return;
    case fault_kind::pause:
      ask_coordinator(clock_, [this](auto& to) { to.logic->pause(to.now(clock_)); });
      return ask_coordinator(clock_ + f.lasts, [this](auto& to) { to.logic->resume(to.now(clock_)); });
    default: return;
  }
}

// A drained worker is taken away a little later; another comes.
void world::drain_and_take_away(const fault& f, std::size_t p) {
  std::size_t live = 0;
  for (const auto& w : processes_) live += w->alive ? 1 : 0;
  if (live < 2) return;
  const auto within = f.b == 1 ? std::optional(std::chrono::milliseconds(f.lasts / 1'000)) : std::nullopt;
  ask_coordinator(clock_, [this, who = processes_[p]->id, within](auto& to) {
    to.logic->drain({who}, within, "fault", to.now(clock_));
  });
  at(clock_ + f.lasts, [this, p] { kill_process(p, "drained"); });
}

void world::stop(host& where, micros lasts) {
  where.stopped = true;
  at(clock_ + lasts, [this, &where] {
    if (!where.alive || !where.stopped) return;
    where.stopped = false;
    if (!where.writing) release(where);
  });
}

// Frames queue at the sender. An end that waits for too long gives the link up; the other hears of it when
// the silence is over, or gives up by itself.
void world::silence_link(std::uint32_t from, std::uint32_t to, micros lasts) {
  auto& l = link_of(from, to);
  auto& way = l.way[from < to ? 0 : 1];
  if (way.silent_until <= clock_) way.sent_before_silence = way.sent;
  way.silent_until = std::max(way.silent_until, clock_ + lasts);
  const auto sender_waits = way.rng.between(8'000, 40'000);
  const auto other_waits = way.rng.between(8'000, 80'000);
  const auto first = std::min(sender_waits, other_waits);
  at(clock_ + first, [this, &l, &way, from, to, session = l.session, first, sender_waits, other_waits] {
    if (!l.up || l.session != session || way.silent_until <= clock_) return;
    const auto left = std::max<micros>(way.silent_until - clock_, 0);
    const auto late = std::min(std::max(sender_waits, other_waits) - first, left) + 200;
    const bool sender_first = sender_waits == first;
    const bool low_first = (from < to) == sender_first;
    sever(l, low_first ? 10 : late, low_first ? late : 10, true);
  });
}

void world::silence_control(std::uint32_t seat, bool upwards, micros lasts) {
  auto& s = seats_[seat];
  auto& until = upwards ? s.up_silent_until : s.down_silent_until;
  until = std::max(until, clock_ + lasts);
  const auto p = live_on(seat);
  if (!p || !processes_[*p]->control) return;
  at(clock_ + s.rng.between(15'000, 90'000),
     [this, p = *p, &until, on = std::weak_ptr(processes_[*p]->control)] {
       const auto still = on.lock();
       if (until > clock_ && still && still->open && processes_[p]->control == still) break_control(p);
     });
}

void world::separate(std::uint32_t seats, bool with_coordinator, micros lasts) {
  for (std::uint32_t a = 0; a < seats_max; ++a) {
    const bool inside = ((seats >> a) & 1U) != 0;
    if (inside != with_coordinator) {
      silence_control(a, true, lasts);
      silence_control(a, false, lasts);
    }
    for (std::uint32_t b = 0; b < seats_max; ++b)
      if (a != b && inside != (((seats >> b) & 1U) != 0)) silence_link(a, b, lasts);
  }
}

}  // namespace perdura::sim
