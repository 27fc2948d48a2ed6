#include "coordinator/logic/watchdog.hpp"

#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

const incarnation alice{1, 1}, bob{2, 2};

heartbeat beat(const incarnation& who, worker_phase phase, std::uint64_t slots_done) {
  heartbeat h;
  h.who = who;
  h.step = step_number(5);
  h.phase = phase;
  h.slots_done = slots_done;
  return h;
}

plan both() {
  plan p;
  p.members = {{alice, {}}, {bob, {}}};
  return p;
}

}  // namespace

TEST_CASE("who computes without a slot done is hung, who waits for it is not") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  w.heard(beat(alice, worker_phase::exchange, 3), start);
  w.heard(beat(bob, worker_phase::compute, 3), start);
  CHECK_FALSE(w.late(both(), start + 1s));
  const auto hung = w.late(both(), start + 1001ms);
  REQUIRE(hung);
  CHECK(hung->who == bob);
  CHECK(hung->why.find("compute") != std::string::npos);
}

TEST_CASE("a slow worker that gets on is left alone") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  for (int i = 0; i < 5; ++i)
    w.heard(beat(bob, worker_phase::compute, static_cast<std::uint64_t>(i)), start + i * 500ms);
  CHECK_FALSE(w.late(both(), start + 2500ms));
}

TEST_CASE("the limit grows with the time that steps take") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  w.step_decided(start + 500ms);
  w.heard(beat(bob, worker_phase::compute, 1), start + 500ms);
  CHECK_FALSE(w.late(both(), start + 10s));
  CHECK(w.late(both(), start + 11s));
}

TEST_CASE("a recovery or a pause is an excuse") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  w.heard(beat(bob, worker_phase::compute, 1), start);
  w.excuse(start + 5s);
  CHECK_FALSE(w.late(both(), start + 5500ms));
}

TEST_CASE("when all wait for each other the one furthest behind is named, with what the others do") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  w.heard(beat(alice, worker_phase::vote, 3), start);
  w.heard(beat(bob, worker_phase::exchange, 3), start);
  CHECK_FALSE(w.late(both(), start + 1s));
  const auto found = w.late(both(), start + 1001ms);
  REQUIRE(found);
  CHECK(found->only_waits);
  CHECK(found->who == bob);
  CHECK(found->why.find("1 have voted") != std::string::npos);
  w.heard(beat(bob, worker_phase::vote, 3), start + 1001ms);
  CHECK_FALSE(w.late(both(), start + 2s));
  CHECK(w.late(both(), start + 2002ms));
}

TEST_CASE("nobody is named while somebody has not been heard, or is paused") {
  watchdog w(1s);
  const watchdog::time_point start{};
  w.step_decided(start);
  w.heard(beat(alice, worker_phase::vote, 3), start);
  CHECK_FALSE(w.late(both(), start + 5s));
  w.heard(beat(bob, worker_phase::paused, 3), start);
  CHECK_FALSE(w.late(both(), start + 5s));
}
