#include "coordinator/logic/planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace perdura;
using namespace perdura::coordinator;

namespace {

incarnation life(std::uint64_t n) { return {n, n}; }

std::uint32_t slots_of(const plan_member& m) {
  std::uint32_t sum = 0;
  for (const auto& b : m.blocks) sum += b.size;
  return sum;
}

bool covers_exactly(const std::vector<plan_member>& plan, std::uint32_t slots) {
  std::vector<int> seen(slots, 0);
  for (const auto& m : plan)
    for (const auto& b : m.blocks) {
      if (!is_aligned(b) || b.end() > slots) return false;
      for (auto s = b.first; s < b.end(); ++s) ++seen[s];
    }
  return std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; });
}

}  // namespace

TEST_CASE("three equal members share sixteen slots in as few blocks as the numbers allow") {
  const auto plan = plan_blocks(16, {{life(3), 1, {}}, {life(1), 1, {}}, {life(2), 1, {}}});
  REQUIRE(plan.size() == 3);
  CHECK(covers_exactly(plan, 16));
  CHECK(std::is_sorted(plan.begin(), plan.end(), [](auto& a, auto& b) { return a.who < b.who; }));
  std::multiset<std::uint32_t> shares;
  std::size_t blocks = 0;
  for (const auto& m : plan) {
    shares.insert(slots_of(m));
    blocks += m.blocks.size();
  }
  CHECK(shares == std::multiset<std::uint32_t>{5, 5, 6});
  CHECK(blocks == 6);  // 4+1, 4+1, 4+2
}

TEST_CASE("slots follow what members can do") {
  const auto plan = plan_blocks(16, {{life(1), 3, {}}, {life(2), 1, {}}});
  CHECK(slots_of(plan[0]) == 12);
  CHECK(slots_of(plan[1]) == 4);
}

TEST_CASE("what is kept stays where it is, and only the rest is split anew") {
  const auto plan = plan_blocks(16, {{life(1), 1, {{0, 4}, {4, 1}}}, {life(2), 1, {{8, 4}}}});
  CHECK(covers_exactly(plan, 16));
  for (const auto& kept : {block{0, 4}, block{4, 1}})
    CHECK(std::find(plan[0].blocks.begin(), plan[0].blocks.end(), kept) != plan[0].blocks.end());
  CHECK(std::find(plan[1].blocks.begin(), plan[1].blocks.end(), block{8, 4}) != plan[1].blocks.end());
  CHECK(slots_of(plan[0]) == 8);
  CHECK(slots_of(plan[1]) == 8);
}

TEST_CASE("any members, any capacities and any kept blocks give a partition") {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t slots = 1U << (rng() % 7);
    const auto count = 1 + rng() % 9;
    std::vector<capacity> members;
    for (std::uint64_t m = 0; m < count; ++m)
      members.push_back({life(m + 1), 0.1 + static_cast<double>(rng() % 10), {}});
    std::vector<block> cover = aligned_cover(0, slots);
    while (rng() % 3 != 0) {  // split blocks at random, then let some be kept
      auto& b = cover[rng() % cover.size()];
      if (b.size == 1) break;
      b.size /= 2;
      cover.push_back({b.end(), b.size});
    }
    for (const auto& b : cover)
      if (rng() % 2 == 0) members[rng() % count].kept.push_back(b);
    CHECK(covers_exactly(plan_blocks(slots, members), slots));
  }
}

TEST_CASE("replicated tiles are held by all, and owners are spread evenly") {
  const auto plan = plan_tiles(22, 3, 0, {});
  std::vector<int> owned(3);
  for (const auto& holders : plan) {
    CHECK(std::set<member_index>(holders.begin(), holders.end()).size() == 3);
    ++owned[holders.front()];
  }
  CHECK(std::minmax_element(owned.begin(), owned.end()).second - owned.begin() >= 0);
  for (const int n : owned) CHECK((n == 7 || n == 8));
}

TEST_CASE("tiles stay with those that hold them; what is missing is filled up") {
  const auto plan = plan_tiles(2, 3, 2, {{0, 1}, {1}});
  CHECK(std::set<member_index>(plan[0].begin(), plan[0].end()) == std::set<member_index>{0, 1});
  CHECK(plan[1].size() == 2);
  CHECK(std::find(plan[1].begin(), plan[1].end(), 1) != plan[1].end());
}
