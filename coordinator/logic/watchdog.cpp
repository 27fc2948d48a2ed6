#include "coordinator/logic/watchdog.hpp"

#include <algorithm>

namespace perdura::coordinator {

namespace {

bool has_own_work(worker_phase p) {
  return p == worker_phase::compute || p == worker_phase::apply || p == worker_phase::settling;
}

bool only_waits(worker_phase p) {
  return p == worker_phase::gather || p == worker_phase::exchange || p == worker_phase::vote;
}

int waiting_rank(worker_phase p) {
  return p == worker_phase::gather ? 0 : p == worker_phase::exchange ? 1 : 2;
}

}  // namespace

void watchdog::heard(const heartbeat& h, time_point now) {
  auto [it, is_new] = seen_.try_emplace(h.who, trace{h, now});
  auto& t = it->second;
  const bool moved = h.step != t.last.step || h.phase != t.last.phase || h.slots_done != t.last.slots_done;
  if (moved) t.changed = now;
  t.last = h;
}

void watchdog::step_decided(time_point now) {
  if (last_step_) {
    const auto took = now - *last_step_;
    usual_ = usual_.count() == 0 ? took : (usual_ * 7 + took) / 8;
  }
  last_step_ = now;
}

std::optional<watchdog::suspect> watchdog::late(const plan& current, time_point now) const {
  if (!last_step_) return std::nullopt;
  const auto limit = std::max<std::chrono::nanoseconds>(least_, usual_ * steps_late);
  if (now - *last_step_ <= limit) return std::nullopt;
  for (const auto& m : current.members) {
    const auto t = seen_.find(m.who);
    if (t == seen_.end() || !has_own_work(t->second.last.phase) || now - t->second.changed <= limit) continue;
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - t->second.changed).count();
    return suspect{m.who, std::string("it has been in phase ") + to_string(t->second.last.phase) +
                              " of step " + to_string(t->second.last.step) + " for " + std::to_string(ms) +
                              " ms without a slot done"};
  }
  return behind_all(current, now, limit);
}

// Whoever is at the lowest step is waited for by all that are beyond it; at the same step those that have
// voted wait for those that have not.
std::optional<watchdog::suspect> watchdog::behind_all(const plan& current, time_point now,
                                                      std::chrono::nanoseconds limit) const {
  const trace* last = nullptr;
  std::size_t waiting_at[2] = {0, 0};
  for (const auto& m : current.members) {
    const auto t = seen_.find(m.who);
    if (t == seen_.end() || now - t->second.changed <= limit) return std::nullopt;
    const auto& h = t->second.last;
    if (!only_waits(h.phase)) return std::nullopt;
    ++waiting_at[h.phase == worker_phase::vote ? 1 : 0];
    const auto order = [](const heartbeat& x) { return std::pair{x.step, waiting_rank(x.phase)}; };
    if (!last || order(h) < order(last->last)) last = &t->second;
  }
  if (!last) return std::nullopt;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now - *last_step_).count();
  return suspect{last->last.who,
                 "no step for " + std::to_string(ms) + " ms, and all wait: " + std::to_string(waiting_at[1]) +
                     " have voted, " + std::to_string(waiting_at[0]) +
                     " wait for gradients or parameters; it is in phase " + to_string(last->last.phase) +
                     " of step " + to_string(last->last.step),
                 true};
}

}  // namespace perdura::coordinator
