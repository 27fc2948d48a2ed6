// Who computes never changes what is computed.
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

TEST_CASE("two workers with even slots end with the bits of one") {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}});
  c.submit(chaos::tiny_job().text());
  auto job = c.wait_finished();
  CHECK(job.final_hash == tiny_hash());
  CHECK(job.recoveries == 0);
  check_history(c, 40);
}

TEST_CASE("three workers with uneven slots, two of them on one node, end with the bits of one") {
  chaos::cluster c;
  start(c, {{.name = "a", .devices = 2}, {.name = "b"}});
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  check_history(c, 40);
}

TEST_CASE("a worker that joins in mid-run takes part without a pause and changes nothing") {
  auto job = chaos::tiny_job().set("steps", "2000");
  chaos::cluster c;
  start(c, {{.name = "a"}});
  auto id = c.submit(job.text());
  c.wait_step(5);
  c.start_node({.name = "b"});
  c.wait_members(2);
  auto joined_at = c.job().step.value;
  c.wait_step(joined_at + 20);
  CHECK(c.job().recoveries == 0);
  REQUIRE(c.admin().cancel(id).has_value());
  auto history = chaos::judge(c.applied(), step_number{joined_at + 20});
  CHECK_MESSAGE(history.empty(), (history.empty() ? std::string{} : history.front()));
}

TEST_CASE("another seed ends with other bits") {
  CHECK(undisturbed_hash(chaos::tiny_job().set("seed", "8")) != tiny_hash());
}
