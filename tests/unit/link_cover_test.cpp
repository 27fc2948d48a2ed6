#include "coordinator/logic/link_cover.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {
incarnation life(std::uint64_t n) { return {n, n}; }
broken_link link(std::uint64_t a, std::uint64_t b) { return link_between(life(a), life(b)); }
bool covers(const std::vector<incarnation>& set, const std::vector<broken_link>& links) {
  return std::all_of(links.begin(), links.end(), [&](const auto& l) {
    return std::find(set.begin(), set.end(), l.first) != set.end() ||
           std::find(set.begin(), set.end(), l.second) != set.end();
  });
}
}  // namespace

TEST_CASE("one worker that none can reach goes, not all the others") {
  const std::vector<broken_link> links{link(1, 4), link(2, 4), link(3, 4)};
  CHECK(smallest_cover(links, {}) == std::vector<incarnation>{life(4)});
}

TEST_CASE("of two that cannot talk the one with less state goes, then with fewer slots, then the newest") {
  const std::vector<broken_link> links{link(1, 2)};
  CHECK(smallest_cover(links, {{life(1), {2, 4, 9}}, {life(2), {3, 1, 1}}}).front() == life(1));
  CHECK(smallest_cover(links, {{life(1), {2, 4, 1}}, {life(2), {2, 3, 9}}}).front() == life(2));
  CHECK(smallest_cover(links, {{life(1), {2, 4, 1}}, {life(2), {2, 4, 9}}}).front() == life(1));
}

TEST_CASE("nobody goes where no link is broken") { CHECK(smallest_cover({}, {}).empty()); }

TEST_CASE("a cover is one, and none smaller exists") {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 200; ++round) {
    const auto n = 3 + rng() % 5;
    std::vector<broken_link> links;
    for (std::uint64_t a = 1; a <= n; ++a)
      for (std::uint64_t b = a + 1; b <= n; ++b)
        if (rng() % 3 == 0) links.push_back(link(a, b));
    const auto found = smallest_cover(links, {});
    CHECK(covers(found, links));
    for (std::uint32_t set = 0; set < 1U << n; ++set) {
      std::vector<incarnation> other;
      for (std::uint64_t a = 1; a <= n; ++a)
        if ((set >> (a - 1)) & 1U) other.push_back(life(a));
      if (covers(other, links)) CHECK(other.size() >= found.size());
    }
  }
}

TEST_CASE("a hundred workers of which one cannot be reached are covered too") {
  std::vector<broken_link> links;
  for (std::uint64_t a = 1; a <= 100; ++a)
    if (a != 50) links.push_back(link(a, 50));
  CHECK(smallest_cover(links, {}) == std::vector<incarnation>{life(50)});
}

TEST_CASE("a link is hopeless when it breaks five times within ten seconds") {
  link_record r;
  const link_record::time_point start{};
  for (int i = 0; i < 4; ++i) r.broke(link(1, 2), start + i * 1s);
  CHECK(r.hopeless(start + 4s).empty());
  r.broke(link(1, 2), start + 4s);
  CHECK(r.hopeless(start + 4s) == std::vector<broken_link>{link(1, 2)});
  CHECK(r.hopeless(start + 11s).empty());
  r.forget(life(2));
  CHECK(r.hopeless(start + 4s).empty());
}
