#include "coordinator/logic/watchdog.hpp"

#include <algorithm>

namespace perdura::coordinator {

namespace {

bool has_own_work(worker_phase p) {
  return p == worker_phase::compute || p == worker_phase::apply || p == worker_phase::settling;
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
  return std::nullopt;
}

}  // namespace perdura::coordinator
