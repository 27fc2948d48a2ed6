#include "coordinator/logic/lease_table.hpp"

#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

const incarnation alice{1, 1}, bob{2, 2};

// Ticks every 50 ms from `from` on, alice being heard each time, for `length`; the time it ends.
lease_table::time_point run(lease_table& leases, lease_table::time_point from,
                            std::chrono::milliseconds length) {
  auto now = from;
  for (; now - from < length; now += 50ms) {
    leases.tick(now);
    leases.renew(alice);
  }
  return now;
}

}  // namespace

TEST_CASE("who is silent for longer than a lease is expired, who is heard is not") {
  lease_table leases(1500ms);
  leases.renew(alice);
  leases.renew(bob);
  const auto now = run(leases, {}, 1500ms);
  leases.tick(now);
  CHECK(leases.expired().empty());
  leases.tick(now + 50ms);
  CHECK(leases.expired() == std::vector{bob});
  leases.forget(bob);
  CHECK(leases.expired().empty());
}

TEST_CASE("a process that slept itself takes nobody for dead") {
  lease_table leases(1500ms);
  leases.renew(bob);
  const auto now = run(leases, {}, 500ms);
  CHECK(leases.tick(now + 1h) > 59min);
  CHECK(leases.expired().empty());
  CHECK(leases.tick(now + 1h + 50ms) == 0ms);
}

TEST_CASE("short sleeps in a row do not add up to a lease") {
  lease_table leases(1500ms);
  leases.renew(alice);
  lease_table::time_point now{};
  leases.tick(now);
  for (int i = 0; i < 3; ++i) {
    now += 740ms;
    leases.tick(now);
    CHECK(leases.expired().empty());
  }
}

TEST_CASE("after a nap, what arrived meanwhile is heard before anybody is taken for dead") {
  lease_table leases(1500ms);
  leases.renew(bob);
  const auto now = run(leases, {}, 1450ms) + 300ms;
  leases.tick(now);
  CHECK(leases.expired().empty());
  leases.tick(now + 50ms);
  CHECK(leases.expired() == std::vector{bob});
}

TEST_CASE("after a sleep the silent are found all the same") {
  lease_table leases(1500ms);
  leases.renew(bob);
  auto now = run(leases, {}, 200ms) + 10s;
  now = run(leases, now, 1600ms);
  CHECK(leases.expired() == std::vector{bob});
}

TEST_CASE("with the rule broken a sleep is taken for the others' silence") {
  lease_table leases(1500ms, broken_rules(rule::excuse_sleep));
  leases.tick(lease_table::time_point{});
  leases.renew(alice);
  leases.tick(lease_table::time_point{} + 2s);
  CHECK(leases.expired() == std::vector{alice});
}
