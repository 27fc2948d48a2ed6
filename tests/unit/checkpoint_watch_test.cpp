#include "coordinator/logic/checkpoint_watch.hpp"

#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

// Ticks every 100 ms for so long; how many snapshots became due, and what was said.
struct outcome {
  int snapshots = 0;
  std::vector<std::string> alarms;
};

struct clocked_watch {
  checkpoint_watch watch;
  checkpoint_watch::time_point now{};
  outcome run(std::chrono::milliseconds length, bool computes) {
    outcome o;
    for (const auto end = now + length; now < end; now += 100ms) {
      const auto a = watch.tick(computes, now);
      o.snapshots += a.snapshot ? 1 : 0;
      if (!a.alarm.empty()) o.alarms.push_back(a.alarm);
    }
    return o;
  }
};

}  // namespace

TEST_CASE("a checkpoint is due once in each interval of computing") {
  clocked_watch w{{10s, 0s}};
  CHECK(w.run(60s, true).snapshots == 5);
  CHECK(w.run(60s, false).snapshots == 0);
  w.watch.committed(step_number(1), "a", w.now);
  CHECK(w.run(9s, true).snapshots == 0);
  CHECK(w.run(2s, true).snapshots == 1);
}

TEST_CASE("without an interval none is due by time") {
  clocked_watch w{{0s, 0s}};
  CHECK(w.run(1000s, true).snapshots == 0);
}

TEST_CASE("a broken promise is said once, stays a warning, and ends with the next checkpoint") {
  clocked_watch w{{0s, 30s}};
  CHECK(w.run(29s, true).alarms.empty());
  const auto o = w.run(60s, true);
  REQUIRE(o.alarms.size() == 1);
  CHECK(o.alarms[0].find("no checkpoint for 30 s") != std::string::npos);
  CHECK(w.watch.warning() == o.alarms[0]);
  CHECK(w.watch.committed(step_number(10), "a", w.now).empty());
  CHECK(w.watch.warning().empty());
  const auto later = w.run(40s, true);
  REQUIRE(later.alarms.size() == 1);
  CHECK(later.alarms[0].find("of step 10") != std::string::npos);
}

TEST_CASE("time in which the job does not compute breaks no promise") {
  clocked_watch w{{0s, 30s}};
  CHECK(w.run(600s, false).alarms.empty());
  CHECK(w.run(20s, true).alarms.empty());
  CHECK(w.run(600s, false).alarms.empty());
  CHECK(w.run(20s, true).alarms.size() == 1);
}

TEST_CASE("a checkpoint in which nothing trained has changed is an alarm") {
  checkpoint_watch watch(0s, 0s);
  CHECK(watch.committed(step_number(10), "a", {}).empty());
  CHECK(watch.committed(step_number(20), "b", {}).empty());
  CHECK(watch.committed(step_number(30), "b", {}).find("steps 20 and 30") != std::string::npos);
  CHECK_FALSE(watch.warning().empty());
  // The same step once more, after a recovery, says nothing.
  CHECK(watch.committed(step_number(30), "b", {}).empty());
  CHECK(watch.committed(step_number(40), "c", {}).empty());
}
