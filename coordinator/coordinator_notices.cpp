// Machines that are about to go: their workers hand over what they hold, then their agents are told to stop.
#include <algorithm>

#include "actors/base/log.hpp"
#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

void coordinator_shell::notice(const node_notice& n, time_point now) {
  const auto found = nodes_.find(n.who);
  if (found == nodes_.end()) return;
  auto& node = found->second;
  const bool is_news = !node.gone_at;
  node.gone_at = now + std::chrono::milliseconds(n.deadline_ms);
  node.draining = true;
  node.told_to_stop = false;  // an order may have been lost with the connection
  if (is_news)
    note("", {event_kind::node_notice,
              node.hello.name,
              "it is gone in " + std::to_string(n.deadline_ms) + " ms: " + n.why,
              {{"deadline_ms", std::to_string(n.deadline_ms)}}});
  see_off(now);
}

bool coordinator_shell::is_leaving(const worker_view& w) const {
  const auto node = nodes_.find(w.hello.node);
  return node != nodes_.end() && node->second.gone_at.has_value();
}

bool coordinator_shell::holds_something(const incarnation& who, const worker_view& w) const {
  const auto* run = run_of(w.job);
  return run && run->logic() && run->logic()->where() != stage::ended && run->logic()->is_involved(who);
}

bool coordinator_shell::holds_anything(const incarnation& node) const {
  // After a restart it is not known yet whose workers hold what.
  const bool is_unknown = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
    const auto* run = job.second.run.get();
    return run && run->logic() && run->logic()->where() == stage::reconnecting;
  });
  return is_unknown || std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
           return w.second.hello.node == node && holds_something(w.first, w.second);
         });
}

// With nobody left to take it over the state stays where it is; a checkpoint is all that can be saved.
void coordinator_shell::hand_over(const incarnation& node, time_point now) {
  for (const auto& [id, job] : jobs_) {
    auto* run = job.run.get();
    if (!run || !run->logic() || run->logic()->where() == stage::ended) continue;
    const auto& logic = *run->logic();
    std::vector<incarnation> leaving;
    for (const auto& [who, w] : workers_)
      if (w.hello.node == node && w.job == id && logic.is_involved(who) && !logic.is_draining(who))
        leaving.push_back(who);
    if (leaving.empty()) continue;
    const auto& members = logic.state().current.members;
    const bool somebody_stays = std::any_of(members.begin(), members.end(), [&](const plan_member& m) {
      const auto w = workers_.find(m.who);
      return w != workers_.end() && !is_leaving(w->second) && !logic.is_draining(m.who);
    });
    auto& view = nodes_.at(node);
    if (somebody_stays) {
      const auto left = std::chrono::floor<std::chrono::milliseconds>(*view.gone_at - now);
      run->drain(leaving, std::max(left, std::chrono::milliseconds(0)), "its machine is about to go", now);
    } else if (!view.is_saved && logic.where() == stage::running) {
      view.is_saved = true;
      log::warn("nobody is left to take over what node " + view.hello.name + " holds of job " + id +
                ": it is written to a checkpoint");
      run->snapshot_now(now);
    }
  }
}

void coordinator_shell::see_off(time_point now) {
  for (auto& [who, node] : nodes_) {
    if (!node.gone_at || !node.connected || node.told_to_stop) continue;
    hand_over(who, now);  // each time: somebody may have come who can take it
    if (holds_anything(who)) continue;
    node.told_to_stop = true;
    const auto left =
        std::max<std::int64_t>(0, std::chrono::ceil<std::chrono::milliseconds>(*node.gone_at - now).count());
    note("", {event_kind::node_released,
              node.hello.name,
              "its workers hold nothing any more, " + std::to_string(left) + " ms before its deadline",
              {{"left_ms", std::to_string(left)}}});
    around_.send_node({options_.term, who, stop_node{"its workers hold nothing any more"}});
  }
}

}  // namespace perdura::coordinator
