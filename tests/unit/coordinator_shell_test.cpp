// The coordinator's shell with a journal and a store of its own, and workers that answer as they should.
#include "coordinator/coordinator_shell.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <set>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

struct temporary {
  std::filesystem::path path;
  temporary() {
    std::string name = (std::filesystem::temp_directory_path() / "perdura-shell-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~temporary() { std::filesystem::remove_all(path); }
};

std::string job_text(const std::string& name, int priority, int min, int max = 0, int spares = 0) {
  return "name = \"" + name + "\"\nsteps = 1000\npriority = " + std::to_string(priority) +
         "\n[elastic]\nmin_workers = " + std::to_string(min) + "\nmax_workers = " + std::to_string(max) +
         "\nspares = " + std::to_string(spares) + "\n";
}

// A worker as the coordinator sees it: loads what it is told to, holds whatever a plan gives it.
struct fake_worker {
  incarnation who;
  incarnation node;
  std::string name;
  std::string job;
  std::uint64_t numeric_class = 7;
};

struct cluster {
  temporary folder;
  std::deque<std::function<void(coordinator_shell&)>> posted;
  std::map<incarnation, fake_worker> workers;
  std::vector<node_order> node_orders;
  std::unique_ptr<coordinator_shell> shell;
  time_point now = std::chrono::steady_clock::now();
  unsigned count = 0;
  std::uint32_t term = 0;

  cluster() { restart(); }

  void restart() {
    shell.reset();
    posted.clear();
    auto memory = journal::open(folder.path / "log");
    REQUIRE(memory);
    std::filesystem::create_directories(folder.path / "store");
    auto keeper = checkpoint_keeper::open(folder.path / "store", folder.path / "index");
    REQUIRE(keeper);
    surroundings around;
    around.post = [this](auto what) { posted.push_back(std::move(what)); };
    around.send = [this](const order_envelope& o) { posted.push_back([this, o](auto&) { obey(o); }); };
    around.send_node = [this](const node_order& o) { node_orders.push_back(o); };
    around.probe = [](const incarnation&, const endpoint&) {};
    around.events_grew = [] {};
    around.end = [] {};
    shell_options options;
    options.term = term_number(++term);
    options.config.gather = std::chrono::milliseconds(0);
    shell = std::make_unique<coordinator_shell>(options, std::move(*memory), std::move(*keeper), around);
    REQUIRE(shell->begin(now));
    settle();
  }

  void tell(worker_message m) { shell->report({std::move(m)}, now); }

  void obey(const order_envelope& o) {
    const auto found = workers.find(o.to);
    if (found == workers.end()) return;
    auto& w = found->second;
    if (const auto* j = std::get_if<job_order>(&o.order)) {
      w.job = j->job;
      tell(job_ready{w.who, w.job, w.numeric_class, {{0, 4, 0}, {4, 4, 0}}});
    }
    if (const auto* d = std::get_if<dismiss_order>(&o.order); d && d->job == w.job) w.job.clear();
    if (const auto* f = std::get_if<fence_order>(&o.order)) {
      inventory_report r;
      r.at = f->at;
      r.who = w.who;
      tell(r);
    }
    if (const auto* r = std::get_if<recover_order>(&o.order)) tell(plan_adopted{r->at, w.who});
    if (const auto* p = std::get_if<proposal_order>(&o.order)) {
      // The next step's verdict names it; who leaves lets go.
      verdict v;
      v.step = step_of(w.job) + 1;
      v.timeline = p->timeline;
      v.plan = p->base;
      v.next_plan = p->next.id;
      tell(verdict_report{w.who, v});
      for (const auto& leaver : p->leavers) tell(released_report{leaver, p->next.id});
    }
  }

  step_number step_of(const std::string& job) { return info(job).step; }

  void settle() {
    for (int i = 0; i < 2000 && !posted.empty(); ++i) {
      const auto next = std::move(posted.front());
      posted.pop_front();
      next(*shell);
    }
    REQUIRE(posted.empty());
  }

  // Time goes by, everybody is heard.
  void pass(std::chrono::milliseconds time = 3s) {
    for (const auto end = now + time; now < end;) {
      now += 100ms;
      for (const auto& [who, w] : workers) {
        heartbeat h;
        h.who = who;
        shell->beat(h, now);
      }
      shell->tick(now);
      settle();
    }
  }

  incarnation add_node(const std::string& name) {
    node_hello h;
    h.who = {100, ++count};
    h.name = name;
    h.labels.rack = "r1";
    REQUIRE(shell->greet(h, now));
    return h.who;
  }

  incarnation add_worker(const incarnation& node, const std::string& name, std::uint64_t numeric_class = 7) {
    fake_worker w{{1, ++count}, node, name, "", numeric_class};
    workers[w.who] = w;
    greet(w.who);
    return w.who;
  }

  void greet(const incarnation& who) {
    worker_hello h;
    h.who = who;
    h.node = workers.at(who).node;
    h.name = workers.at(who).name;
    REQUIRE(shell->greet(h, now));
    const auto& w = workers.at(who);
    if (!w.job.empty()) tell(job_ready{who, w.job, w.numeric_class, {{0, 4, 0}, {4, 4, 0}}});
    settle();
  }

  std::string submit(const std::string& text) {
    const auto s = shell->submit(text, "job.toml");
    REQUIRE(s.errors.empty());
    settle();
    return s.job;
  }

  admin::job_info info(const std::string& job) const {
    for (auto& j : shell->jobs())
      if (j.id == job) return j;
    FAIL("no such job");
    return {};
  }
  admin::worker_info worker(const std::string& name) const {
    for (auto& w : shell->workers())
      if (w.name == name) return w;
    FAIL("no such worker");
    return {};
  }
  std::size_t members(const std::string& job) const {
    const auto all = shell->workers();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), [&](const auto& w) {
      return w.job == job && w.state == admin::worker_state::member;
    }));
  }
  bool noted(const std::string& kind, const std::string& subject) const {
    const auto page = shell->events({.limit = 1000, .newest = true});
    REQUIRE(page);
    return std::any_of(page->events.begin(), page->events.end(), [&](const auto& e) {
      return e.kind == kind && e.subject == subject && !e.reason.empty();
    });
  }
};

}  // namespace

TEST_CASE("two jobs run side by side, each on workers of its own") {
  cluster c;
  const auto node = c.add_node("a");
  for (const char* name : {"a/0", "a/1", "a/2", "a/3"}) c.add_worker(node, name);
  const auto one = c.submit(job_text("one", 0, 2, 2));
  const auto two = c.submit(job_text("two", 0, 2, 2));
  c.pass();
  CHECK(c.info(one).state == admin::job_state::running);
  CHECK(c.info(two).state == admin::job_state::running);
  CHECK(c.members(one) == 2);
  CHECK(c.members(two) == 2);
  CHECK(c.worker("a/0").tiles_held == 2);
  CHECK(c.worker("a/0").tiles_owned + c.worker("a/1").tiles_owned == 2);
}

TEST_CASE("a command that names no job is refused while several run, and says which there are") {
  cluster c;
  const auto node = c.add_node("a");
  for (const char* name : {"a/0", "a/1"}) c.add_worker(node, name);
  const auto one = c.submit(job_text("one", 0, 1, 1));
  const auto two = c.submit(job_text("two", 0, 1, 1));
  c.pass();
  const auto refused = c.shell->pause("", c.now);
  REQUIRE_FALSE(refused);
  CHECK(refused.failure().message == "several jobs run: say which of " + one + ", " + two);
  CHECK(c.shell->pause(one, c.now));
}

TEST_CASE("a higher job gets workers of a lower one when they have let go") {
  cluster c;
  const auto node = c.add_node("a");
  for (const char* name : {"a/0", "a/1", "a/2"}) c.add_worker(node, name);
  const auto low = c.submit(job_text("low", 0, 1));
  c.pass();
  CHECK(c.members(low) == 3);
  const auto high = c.submit(job_text("high", 1, 2, 2));
  c.pass();
  CHECK(c.members(high) == 2);
  CHECK(c.members(low) == 1);
  CHECK(c.info(low).recoveries == 0);
  REQUIRE(c.shell->cancel(high, c.now));
  c.settle();
  c.pass();
  CHECK(c.members(low) == 3);
}

TEST_CASE("a job that cannot fit says what is missing") {
  cluster c;
  const auto node = c.add_node("a");
  c.add_worker(node, "a/0");
  const auto job = c.submit(job_text("wide", 0, 3));
  CHECK(c.info(job).state == admin::job_state::waiting);
  CHECK(c.info(job).why == "needs 3 workers, 1 is free");
  CHECK(c.noted("job_waits", job));
  CHECK(c.worker("a/0").job.empty());
}

TEST_CASE("a lower job is stopped whole for a higher one and goes on afterwards") {
  cluster c;
  const auto node = c.add_node("a");
  for (const char* name : {"a/0", "a/1"}) c.add_worker(node, name);
  const auto low = c.submit(job_text("low", 0, 2));
  c.pass();
  const auto high = c.submit(job_text("high", 1, 2));
  c.pass();
  // Its last checkpoint is not written, for these workers write none: it is not waited for without end.
  CHECK(c.info(low).why == "it gives up its workers, with a checkpoint");
  c.pass(31s);
  CHECK(c.members(high) == 2);
  CHECK(c.info(low).state == admin::job_state::waiting);
  CHECK(c.info(low).why == "needs 2 workers, 0 are free; 2 serve " + high + " (priority 1)");
  REQUIRE(c.shell->cancel(high, c.now));
  c.settle();
  c.pass();
  CHECK(c.info(low).state == admin::job_state::running);
  CHECK(c.members(low) == 2);  // the same lives: none was fenced
}

TEST_CASE("a job that is being stopped is still so after the coordinator's restart") {
  cluster c;
  const auto node = c.add_node("a");
  for (const char* name : {"a/0", "a/1"}) c.add_worker(node, name);
  const auto low = c.submit(job_text("low", 0, 2));
  c.pass();
  const auto high = c.submit(job_text("high", 1, 2));
  c.pass(500ms);
  c.restart();
  for (const auto& [who, w] : c.workers) c.greet(who);
  c.pass(40s);
  CHECK(c.members(high) == 2);
  CHECK(c.info(low).state == admin::job_state::waiting);
}

TEST_CASE("a drained node is used by nobody, also after the coordinator's restart, and its work moves") {
  cluster c;
  const auto a = c.add_node("a"), b = c.add_node("b");
  c.add_worker(a, "a/0");
  c.add_worker(b, "b/0");
  const auto job = c.submit(job_text("one", 0, 1));
  c.pass();
  REQUIRE(c.members(job) == 2);
  REQUIRE(c.shell->drain("a", 60s, c.now));
  c.pass();
  CHECK(c.members(job) == 1);
  CHECK(c.worker("a/0").job.empty());
  CHECK(c.worker("a/0").leaving.is_going);
  const auto nodes = c.shell->nodes(c.now);
  REQUIRE(nodes.size() == 2);
  CHECK(nodes[0].state == admin::node_state::draining);
  CHECK(nodes[0].leaving.left_ms.value_or(0) > 0);
  CHECK(nodes[0].rack == "r1");
  c.add_worker(a, "a/0");
  c.pass();
  CHECK(c.members(job) == 1);
  c.restart();
  for (const auto& [who, w] : c.workers) c.greet(who);
  c.pass();
  CHECK(c.members(job) == 1);
  CHECK(c.worker("b/0").job == job);
}

TEST_CASE("a machine with a notice is told to stop when its workers hold nothing any more") {
  cluster c;
  const auto a = c.add_node("a"), b = c.add_node("b");
  c.add_worker(a, "a/0");
  c.add_worker(b, "b/0");
  const auto job = c.submit(job_text("one", 0, 1));
  c.pass();
  c.shell->notice({a, 30000, "SIGTERM"}, c.now);
  CHECK(c.node_orders.empty());
  c.pass();
  CHECK(c.members(job) == 1);
  REQUIRE(c.node_orders.size() == 1);
  CHECK(c.node_orders[0].to == a);
  CHECK(std::holds_alternative<stop_node>(c.node_orders[0].order));
}

TEST_CASE("a worker with other bits serves another job") {
  cluster c;
  const auto node = c.add_node("a");
  c.add_worker(node, "a/0");
  const auto one = c.submit(job_text("one", 0, 1));
  c.pass();
  c.add_worker(node, "a/1", 8);
  c.pass();
  CHECK(c.worker("a/1").job.empty());
  const auto two = c.submit(job_text("two", 0, 1));
  c.pass();
  CHECK(c.members(two) == 1);
  CHECK(c.members(one) == 1);
}

TEST_CASE("a job that waits can be put on hold, and starts when it is resumed") {
  cluster c;
  const auto job = c.submit(job_text("one", 0, 1));
  REQUIRE(c.shell->pause(job, c.now));
  const auto node = c.add_node("a");
  c.add_worker(node, "a/0");
  c.pass();
  CHECK(c.info(job).state == admin::job_state::paused);
  CHECK(c.worker("a/0").job.empty());
  REQUIRE(c.shell->resume(job, c.now));
  c.pass();
  CHECK(c.info(job).state == admin::job_state::running);
}
