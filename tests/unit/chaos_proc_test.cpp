#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "chaos/proc/cluster.hpp"
#include "chaos/proc/oracle.hpp"
#include "chaos/proc/process.hpp"

using namespace perdura;
using namespace perdura::chaos;

namespace {

constexpr milliseconds soon{10000};

launch shell(const std::string& script, const std::string& tag = "PERDURA_CHAOS=none") {
  return {.program = "/bin/sh", .arguments = {"-c", script}, .environment = {tag}};
}

std::string unique_tag(const std::string& name) {
  return "PERDURA_CHAOS=" + name + std::to_string(::getpid());
}

applied_step applied(const std::string& who, std::uint32_t timeline, std::uint64_t step,
                     const std::string& outcome) {
  return {.who = who, .timeline = timeline_number{timeline}, .step = step_number{step}, .outcome = outcome};
}

}  // namespace

TEST_CASE("a process's exit code and the signal that ended it are told apart") {
  process ended(shell("exit 7"));
  CHECK(ended.wait(soon) == 7);
  process killed(shell("sleep 60"));
  killed.signal(SIGKILL);
  CHECK(killed.wait(soon) == 128 + SIGKILL);
  CHECK_FALSE(killed.is_running());
}

TEST_CASE("a process that does not end in time is still running") {
  process slow(shell("sleep 60"));
  CHECK_FALSE(slow.wait(milliseconds{20}).has_value());
  CHECK(slow.is_running());
}

TEST_CASE("a process goes with its owner, and its orphaned child is found by its tag") {
  auto tag = unique_tag("orphan");
  {
    process parent(shell("sleep 60 & wait", tag));
    wait_until("the grandchild", soon, [&] { return processes_with(tag).size() == 2; });
  }
  auto left = processes_with(tag);
  REQUIRE(left.size() == 1);
  ::kill(left.front(), SIGKILL);
  wait_until("the grandchild's end", soon, [&] { return processes_with(tag).empty(); });
}

TEST_CASE("output goes to the file and its tail is the last lines") {
  temporary_folder folder("perdura-chaos-test");
  auto what = shell("for i in 1 2 3; do echo line $i; done");
  what.output = folder.path() / "out";
  process writer(what);
  REQUIRE(writer.wait(soon) == 0);
  CHECK(tail(what.output, 2) == "    line 2\n    line 3\n");
}

TEST_CASE("waiting for what does not come says what it was") {
  CHECK_THROWS_WITH_AS(wait_until("spring", milliseconds{5}, [] { return false; }), "waited 5 ms for spring",
                       failure);
}

TEST_CASE("a program that is not there is a failure of the cluster, not a hang") {
  cluster c({.programs = "/nonexistent", .forget_failures = true});
  CHECK_THROWS_AS(c.start_coordinator(), failure);
  CHECK(c.processes().empty());
}

TEST_CASE("a job's text has its tables after its own keys") {
  job_text job({{"steps", "3"}, {"batch.size", "8"}, {"batch.slots", "4"}});
  CHECK(job.set("steps", "5").text() == "steps = 5\n[batch]\nsize = 8\nslots = 4\n");
}

TEST_CASE("the oracle accepts consecutive steps with one outcome, a joiner and a later timeline") {
  std::vector<applied_step> seen{applied("a", 0, 1, "x"), applied("a", 0, 2, "y"), applied("b", 0, 2, "y"),
                                 applied("b", 0, 3, "z"), applied("c", 1, 3, "z"), applied("c", 1, 4, "w")};
  CHECK(judge(seen, step_number{4}).empty());
}

TEST_CASE("the oracle finds a step applied twice, backwards, with two outcomes, or never") {
  auto complaints = [](const std::vector<applied_step>& seen, std::uint64_t last) {
    auto all = judge(seen, step_number{last});
    return all.empty() ? std::string{} : all.front();
  };
  CHECK(complaints({applied("a", 0, 1, "x"), applied("a", 0, 1, "x")}, 1) ==
        "a applied step 1 of timeline 0 twice");
  CHECK(complaints({applied("a", 0, 2, "y"), applied("a", 0, 1, "x")}, 2) ==
        "a applied step 1 of timeline 0 after step 2 of timeline 0");
  CHECK(complaints({applied("a", 0, 1, "x"), applied("b", 0, 1, "y")}, 1) ==
        "step 1 of timeline 0 has two outcomes: x for a, y for b");
  CHECK(complaints({applied("a", 0, 1, "x"), applied("a", 0, 3, "z")}, 3) ==
        "step 2 of timeline 0 was never applied");
  CHECK(complaints({applied("a", 0, 2, "y")}, 2) == "step 1 was never applied");
  CHECK(complaints({applied("a", 0, 1, "x")}, 2) == "step 2 of timeline 0 was never applied");
}

TEST_CASE("traces are read back, without the line that a death cut off") {
  temporary_folder folder("perdura-chaos-test");
  std::ofstream(folder.path() / "a") << "0 1 loss=1 norm=2\n0 2 loss=3 norm=4\n0 3 lo";
  auto seen = read_traces(folder.path());
  REQUIRE(seen.size() == 2);
  CHECK(seen[1].who == "a");
  CHECK(seen[1].step == step_number{2});
  CHECK(seen[1].outcome == "loss=3 norm=4");
}
