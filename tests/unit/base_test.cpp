#include <doctest/doctest.h>

#include <limits>

#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

using namespace perdura;

TEST_CASE("an era of a newer term outranks every era of an older one") {
  CHECK(era{term_number(1), 99} < era{term_number(2), 0});
  CHECK(plan_id{{term_number(1), 2}, 9} < plan_id{{term_number(1), 3}, 0});
}

TEST_CASE("an incarnation survives being written as text") {
  const incarnation who{0x0123456789abcdefULL, 0xfedcba9876543210ULL};
  CHECK(parse_incarnation(to_string(who)) == who);
  CHECK(parse_incarnation("not an incarnation").is_none());
}

TEST_CASE("every range of slots is covered exactly by aligned blocks") {
  for (std::uint32_t first = 0; first < 32; ++first)
    for (std::uint32_t end = first; end <= 32; ++end) {
      std::uint32_t at = first;
      for (const auto& b : aligned_cover(first, end)) {
        CHECK(is_aligned(b));
        CHECK(b.first == at);
        at = b.end();
      }
      CHECK(at == end);
    }
}

TEST_CASE("outcomes are compared by their bits") {
  step_outcome a;
  a.loss = std::numeric_limits<double>::quiet_NaN();
  step_outcome b = a;
  CHECK(a == b);
  b.clip_scale = -0.0F;
  CHECK_FALSE(a == b);
}
