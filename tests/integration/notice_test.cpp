// A machine that is about to go says so in time: what its workers hold is with the others before it ends.
#include <csignal>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

constexpr milliseconds grace{20000};

std::vector<admin::event_info> events_of(chaos::cluster& c, const std::string& kind) {
  auto all = c.events();
  std::erase_if(all, [&](const auto& e) { return e.kind != kind; });
  return all;
}

}  // namespace

TEST_CASE("a node whose agent gets a SIGTERM hands over: nothing is recomputed, and the bits stay") {
  auto job = chaos::tiny_job().set("steps", "400");
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b", .devices = 2, .more = {"--grace-ms", "20000"}}, {.name = "c"}});
  c.submit(job.text());
  c.wait_step(10);
  c.node("b").signal(SIGTERM);
  CHECK(c.node("b").wait(grace) == 0);
  CHECK_FALSE(admin::has_ended(c.job().state));

  auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
  CHECK(end.recoveries == 0);
  CHECK(c.recoveries().empty());
  check_history(c, 400);
  auto notices = events_of(c, "node_notice");
  REQUIRE(notices.size() == 1);
  CHECK(notices.front().subject == "b");
  CHECK(notices.front().reason.find("SIGTERM") != std::string::npos);
  CHECK(events_of(c, "worker_left").size() == 2);
  auto released = events_of(c, "node_released");
  REQUIRE(released.size() == 1);
  CHECK(released.front().subject == "b");
}

TEST_CASE("a node that waits for work goes at once when it is told to") {
  chaos::cluster c;
  start(c, {{.name = "a", .more = {"--grace-ms", "3600000"}}});
  c.node("a").signal(SIGTERM);
  CHECK(c.node("a").wait(grace) == 0);
}

TEST_CASE("the last node that goes leaves a checkpoint, and another goes on from it to the same bits") {
  auto job = chaos::tiny_job().set("steps", "600").set("checkpoint.interval_steps", "100000");
  chaos::cluster c;
  start(c, {{.name = "a", .more = {"--grace-ms", "500"}}});
  c.submit(job.text());
  c.wait_step(10);
  c.node("a").signal(SIGTERM);
  c.wait_event("checkpoint_committed");
  CHECK(c.node("a").wait(grace) == 0);
  c.start_node({.name = "b"});
  const auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
  check_history(c, 600);
}
