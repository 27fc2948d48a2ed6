// A worker dies in each phase of a step; the survivors finish that step and end with the same bits.
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

void survives_a_death_in(const std::string& phase) {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b", .fault = "kill:15:" + phase}, {.name = "c"}});
  auto victim = c.worker("b/0").who;
  c.submit(chaos::tiny_job().text());
  auto job = c.wait_finished();
  CHECK(job.final_hash == tiny_hash());
  CHECK(job.recoveries >= 1);
  CHECK(job.timeline.value == 1);  // the seed's own: nothing was abandoned
  for (const auto& w : c.workers())
    if (w.who == victim) CHECK(w.state == admin::worker_state::dead);
  auto recoveries = c.recoveries();
  REQUIRE_FALSE(recoveries.empty());
  CHECK(recoveries.front().committed_ms.has_value());
  check_history(c, 40);
}

}  // namespace

TEST_CASE("a worker dies while it computes") { survives_a_death_in("compute"); }
TEST_CASE("a worker dies while sums are exchanged") { survives_a_death_in("exchange"); }
TEST_CASE("a worker dies when it has voted") { survives_a_death_in("vote"); }
TEST_CASE("a worker dies when it has seen the verdict") { survives_a_death_in("verdict"); }
TEST_CASE("a worker dies while it applies") { survives_a_death_in("apply"); }
TEST_CASE("a worker dies while parameters are gathered") { survives_a_death_in("gather"); }

TEST_CASE("two workers of three die at once") {
  chaos::cluster c;
  start(c,
        {{.name = "a"}, {.name = "b", .fault = "kill:12:exchange"}, {.name = "c", .fault = "kill:12:vote"}});
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  check_history(c, 40);
}

TEST_CASE("a node dies with both its workers, and another node takes over") {
  chaos::cluster c;
  auto job = chaos::tiny_job().set("steps", "300");
  start(c, {{.name = "a"}, {.name = "b", .devices = 2}});
  c.submit(job.text());
  c.wait_step(10);
  c.kill_node("b");
  c.start_node({.name = "c"});
  const auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
  check_history(c, 300);
}
