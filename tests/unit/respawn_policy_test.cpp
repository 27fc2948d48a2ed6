#include "worker/node/respawn_policy.hpp"

#include <doctest/doctest.h>

#include <vector>

using namespace perdura::worker;
using namespace std::chrono_literals;

TEST_CASE("the wait doubles from 50 ms to 5 s for a child that keeps ending") {
  respawn_policy policy;
  std::vector<long> delays;
  for (int i = 0; i < 10; ++i) delays.push_back(policy.on_exit(10ms, "exited with code 1").delay.count());
  CHECK(delays == std::vector<long>{50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000});
}

TEST_CASE("a life of a minute starts the count anew, and one just short of it does not") {
  struct row {
    std::chrono::milliseconds lived;
    std::chrono::milliseconds delay;
    unsigned failures;
  };
  const std::vector<row> rows{{0ms, 50ms, 1},  {59'999ms, 100ms, 2},    {60'000ms, 50ms, 1}, {1ms, 100ms, 2},
                              {1ms, 200ms, 3}, {86'400'000ms, 50ms, 1}, {90'000ms, 50ms, 1}};
  respawn_policy policy;
  for (const auto& r : rows) {
    const auto d = policy.on_exit(r.lived, "was killed by SIGKILL");
    CHECK(d.delay == r.delay);
    CHECK(d.failures_in_a_row == r.failures);
  }
}

TEST_CASE("the decision gives its reason") {
  respawn_policy policy;
  CHECK(policy.on_exit(70'000ms, "was killed by SIGKILL").reason ==
        "was killed by SIGKILL after 70000 ms; starting again in 50 ms");
  CHECK(policy.on_exit(12ms, "exited with code 2").reason ==
        "exited with code 2 after 12 ms; starting again in 100 ms, as it has ended 2 times without 60000 ms "
        "of life "
        "in between");
}

TEST_CASE("the longest wait holds, whatever the first one is, for however many ends") {
  respawn_policy policy({.first = 300ms, .longest = 1000ms, .healthy = 1s});
  CHECK(policy.on_exit(0ms, "").delay == 300ms);
  CHECK(policy.on_exit(0ms, "").delay == 600ms);
  for (int i = 0; i < 10'000; ++i) CHECK(policy.on_exit(999ms, "").delay == 1000ms);
  CHECK(policy.on_exit(1s, "").delay == 300ms);
}
