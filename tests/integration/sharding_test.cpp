// State is divided among the workers in ever other ways, and comes, goes and is lost: the bits stay.
#include <csignal>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

chaos::job_text sharded(const std::string& level, unsigned replicas) {
  return chaos::tiny_job().set("sharding", '"' + level + '"').set("replicas", std::to_string(replicas));
}

const std::string levels[] = {"optimizer", "gradients", "parameters"};

}  // namespace

TEST_CASE("each way to divide the state, with one to three copies, ends with the bits of one worker") {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}, {.name = "c"}});
  for (const auto& level : levels)
    for (unsigned replicas = 1; replicas <= 3; ++replicas) {
      CAPTURE(level);
      CAPTURE(replicas);
      c.submit(sharded(level, replicas).text());
      auto job = c.wait_finished();
      CHECK(job.final_hash == tiny_hash());
      CHECK(job.recoveries == 0);
    }
}

TEST_CASE("with two copies the death of any one worker costs no step") {
  const std::pair<std::string, std::string> deaths[] = {{"optimizer", "gather"},   {"optimizer", "exchange"},
                                                        {"gradients", "exchange"}, {"gradients", "apply"},
                                                        {"parameters", "compute"}, {"parameters", "vote"}};
  for (const auto& [level, phase] : deaths) {
    CAPTURE(level);
    CAPTURE(phase);
    chaos::cluster c;
    start(c, {{.name = "a"}, {.name = "b", .fault = "kill:15:" + phase}, {.name = "c"}});
    c.submit(sharded(level, 2).text());
    auto job = c.wait_finished();
    CHECK(job.final_hash == tiny_hash());
    CHECK(job.recoveries >= 1);
    CHECK(job.timeline == first_timeline);
    check_history(c, 40);
  }
}

TEST_CASE("where the only copy of a tile is lost the job goes back to its checkpoint, to the same bits") {
  for (const auto& level : levels) {
    CAPTURE(level);
    chaos::cluster c;
    start(c, {{.name = "a"}, {.name = "b", .fault = "kill:25:vote"}, {.name = "c"}});
    c.submit(sharded(level, 1).text());
    auto job = c.wait_finished();
    CHECK(job.final_hash == tiny_hash());
    CHECK(job.timeline.value == 2);
    check_history(c, 40);
  }
}

TEST_CASE("an owner and its replica die together: from the checkpoint, to the same bits") {
  chaos::cluster c;
  start(c, {{.name = "a", .fault = "kill:25:exchange"},
            {.name = "b", .fault = "kill:25:exchange"},
            {.name = "c"}});
  c.submit(sharded("parameters", 2).text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  check_history(c, 40);
}

TEST_CASE("joins, drains, kills and stops of workers with divided state change nothing") {
  for (const auto* level : {"optimizer", "parameters"}) {
    CAPTURE(std::string(level));
    auto job = sharded(level, 2).set("steps", "2500").set("checkpoint.interval_steps", "200");
    chaos::cluster c;
    start(c, {{.name = "a"}, {.name = "b"}});
    c.submit(job.text());
    c.wait_step(10);
    c.start_node({.name = "c"});
    c.wait_members(3);
    REQUIRE(c.admin().drain("a", std::nullopt).has_value());
    c.wait_members(2);
    c.start_node({.name = "d", .devices = 2});
    c.wait_members(4);
    c.kill_worker("b/0");
    c.wait_step(c.job().step.value + 5);
    c.stop_worker("d/1");
    auto end = c.wait_finished();
    CHECK(end.final_hash ==
          undisturbed_hash(chaos::tiny_job().set("steps", "2500").set("checkpoint.interval_steps", "200")));
    CHECK(end.timeline == first_timeline);
  }
}
