// The coordinator is killed, a worker sleeps through its lease, everything is killed at once: the bits stay.
#include <csignal>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

TEST_CASE("a coordinator that is killed and started again takes the running workers back") {
  auto job = chaos::tiny_job().set("steps", "300");
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}});
  c.submit(job.text());
  c.wait_step(10);
  auto before = c.workers();
  auto term = c.status().term;
  c.kill_coordinator();
  c.start_coordinator();
  CHECK(c.status().term > term);
  chaos::wait_until("both workers to be back", chaos::cluster::default_limit,
                    [&] { return c.workers().size() == 2; });
  for (const auto& w : before) CHECK(c.worker(w.name).who == w.who);
  auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
  CHECK(end.timeline == first_timeline);
  check_history(c, 300);
}

TEST_CASE("a worker that sleeps longer than its lease is fenced when it wakes and comes back as another") {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b", .fault = "stop:15:compute"}});
  auto sleeper = c.worker("b/0");
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  ::kill(static_cast<pid_t>(sleeper.pid), SIGCONT);
  chaos::wait_until("b/0 in a new life", chaos::cluster::default_limit, [&] {
    auto all = c.workers();
    return std::any_of(all.begin(), all.end(), [&](const auto& w) {
      return w.name == "b/0" && w.who != sleeper.who && w.state != admin::worker_state::dead;
    });
  });
  check_history(c, 40);
}

TEST_CASE("all processes killed at once and started again resume from the checkpoint to the same bits") {
  chaos::cluster c;
  auto job = chaos::tiny_job().set("steps", "200");
  start(c, {{.name = "a"}, {.name = "b"}});
  c.submit(job.text());
  c.wait_step(35);
  c.kill_all();
  CHECK(c.processes().empty());
  start(c, {{.name = "a"}, {.name = "b"}});
  auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
  CHECK(end.timeline.value == 2);
  check_history(c, 200);
}

TEST_CASE("a cluster that is asked to end leaves no process") {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b", .devices = 2}});
  c.submit(chaos::tiny_job().set("steps", "100000").text());
  c.wait_step(3);
  CHECK(c.shut_down(milliseconds{15000}));
}
