// Machines and workers that go: what they hold is handed over, and nothing is placed there any more.
#include <algorithm>

#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t drains_max = 4096;

std::uint64_t unix_ms() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(
      duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

std::string time_text(std::chrono::milliseconds t) { return std::to_string(t.count()) + " ms"; }

}  // namespace

void coordinator_shell::tell_drain(const incarnation& who, admin::departure& into) const {
  const auto* d = drain_of(who);
  if (!d) return;
  into.is_going = true;
  into.why = d->why;
  const auto now = unix_ms();
  if (d->gone_unix_ms > 0) into.left_ms = d->gone_unix_ms > now ? d->gone_unix_ms - now : 0;
}

const drain_entry* coordinator_shell::drain_of(const incarnation& who) const {
  const auto d =
      std::find_if(drains_.begin(), drains_.end(), [&](const auto& entry) { return entry.who == who; });
  return d == drains_.end() ? nullptr : &*d;
}

bool coordinator_shell::is_going(const worker_view& w) const {
  if (drain_of(w.hello.who) || drain_of(w.hello.node)) return true;
  const auto n = nodes_.find(w.hello.node);
  return n != nodes_.end() && n->second.hello.going;
}

// Durable on return. True: it was not drained before. Asked again, the earlier deadline holds.
bool coordinator_shell::record_drain(const incarnation& who, const std::string& name,
                                     std::optional<std::chrono::milliseconds> within,
                                     const std::string& why) {
  const std::uint64_t gone =
      within ? unix_ms() + static_cast<std::uint64_t>(std::max<std::int64_t>(1, within->count())) : 0;
  const auto known =
      std::find_if(drains_.begin(), drains_.end(), [&](const auto& d) { return d.who == who; });
  const bool is_news = known == drains_.end();
  if (is_news)
    drains_.push_back({who, name, gone, why});
  else if (gone > 0 && (known->gone_unix_ms == 0 || gone < known->gone_unix_ms))
    known->gone_unix_ms = gone;
  else
    return false;
  if (drains_.size() > drains_max) drains_.erase(drains_.begin());
  journal_->put(drains_);
  return is_news;
}

void coordinator_shell::hand_over(const std::vector<incarnation>& workers,
                                  std::optional<std::chrono::milliseconds> within, const std::string& why,
                                  time_point now) {
  std::map<std::string, std::vector<incarnation>> by_job;
  for (const auto& who : workers) by_job[workers_.at(who).job].push_back(who);
  for (const auto& [id, some] : by_job)
    if (auto* run = run_of(id)) run->drain(some, within, why, now);
  free_those_that_let_go();
  place_soon();  // others take their places
}

// Jobs whose members all are to leave: they need other workers first.
std::string coordinator_shell::left_alone(const std::vector<incarnation>& leaving) const {
  std::string jobs;
  for (const auto& [id, job] : jobs_) {
    if (!job.run || !job.run->logic()) continue;
    const auto& members = job.run->logic()->state().current.members;
    const bool all_leave = std::all_of(members.begin(), members.end(), [&](const auto& m) {
      const auto w = workers_.find(m.who);
      return std::find(leaving.begin(), leaving.end(), m.who) != leaving.end() ||
             (w != workers_.end() && is_going(w->second));
    });
    if (!members.empty() && all_leave) jobs += (jobs.empty() ? "" : ", ") + id;
  }
  return jobs;
}

result<admin::receipt> coordinator_shell::drain(const std::string& name,
                                                std::optional<std::chrono::milliseconds> within,
                                                time_point now) {
  std::vector<std::pair<incarnation, std::string>> meant;  // nodes and workers
  std::vector<incarnation> leaving;
  for (const auto& [who, n] : nodes_) {
    if (n.hello.name != name || !n.connected) continue;
    meant.emplace_back(who, n.hello.name);
    for (const auto& [worker, w] : workers_)
      if (w.hello.node == who) leaving.push_back(worker);
  }
  for (const auto& [who, w] : workers_) {
    if (w.hello.name != name) continue;
    meant.emplace_back(who, w.hello.name);
    leaving.push_back(who);
  }
  if (meant.empty()) return error{errc::not_found, "there is no node or worker \"" + name + "\""};
  const std::string why = "a person asked for it";
  for (const auto& [who, of] : meant)
    if (record_drain(who, of, within, why))
      note("", {event_kind::drain_asked,
                of,
                why + (within ? "; it is gone in " + time_text(*within) : ""),
                {{"incarnation", to_string(who)}}});
  const auto alone = left_alone(leaving);
  hand_over(leaving, within, why, now);
  std::string text = std::to_string(leaving.size()) +
                     " workers hand over what they hold, then stay idle; nothing is placed there any more";
  if (!alone.empty())
    text += "; nobody else holds the state of " + alone + " yet: it stays until another worker has joined" +
            (within ? ", or is lost when the time is over" : "");
  return admin::receipt{text};
}

void coordinator_shell::notice(const node_notice& n, time_point now) {
  const auto found = nodes_.find(n.who);
  if (found == nodes_.end()) return;
  auto& node = found->second;
  node.hello.going = true;
  node.told_to_stop = false;  // the order may have been lost with the connection
  const std::chrono::milliseconds within(n.deadline_ms);
  if (record_drain(n.who, node.hello.name, within, n.why))
    note("", {event_kind::node_notice,
              node.hello.name,
              "it is gone in " + time_text(within) + ": " + n.why,
              {{"deadline_ms", std::to_string(n.deadline_ms)}}});
  std::vector<incarnation> leaving;
  for (const auto& [who, w] : workers_)
    if (w.hello.node == n.who) leaving.push_back(who);
  hand_over(leaving, within, n.why, now);
  see_off();
}

bool coordinator_shell::may_hold_something(const incarnation& node) const {
  // After a restart it is not known yet whose workers hold what.
  const bool is_unknown = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
    const auto* run = job.second.run.get();
    return run && run->logic() && run->logic()->where() == stage::reconnecting;
  });
  return is_unknown || std::any_of(workers_.begin(), workers_.end(), [&](const auto& w) {
           return w.second.hello.node == node && !w.second.job.empty();
         });
}

// The agent of a machine that goes waits to be told that its workers hold nothing any more.
void coordinator_shell::see_off() {
  for (auto& [who, n] : nodes_) {
    if (!n.hello.going || !n.connected || n.told_to_stop || may_hold_something(who)) continue;
    n.told_to_stop = true;
    admin::departure d;
    tell_drain(who, d);
    note("", {event_kind::node_released,
              n.hello.name,
              "its workers hold nothing any more, " + std::to_string(d.left_ms.value_or(0)) +
                  " ms before its deadline",
              {{"left_ms", std::to_string(d.left_ms.value_or(0))}}});
    around_.send_node({options_.term, who, stop_node{"its workers hold nothing any more"}});
  }
}

}  // namespace perdura::coordinator
