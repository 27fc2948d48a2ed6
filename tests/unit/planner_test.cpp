#include "coordinator/logic/planner.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
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

std::vector<candidate> equals(std::uint64_t count) {
  std::vector<candidate> members;
  for (std::uint64_t m = 1; m <= count; ++m) members.push_back({life(m)});
  return members;
}

std::vector<std::uint32_t> slots_of(const std::vector<plan_member>& plan) {
  std::vector<std::uint32_t> slots;
  for (const auto& m : plan) slots.push_back(slots_of(m));
  return slots;
}

std::size_t blocks_of(const std::vector<plan_member>& plan) {
  std::size_t blocks = 0;
  for (const auto& m : plan) blocks += m.blocks.size();
  return blocks;
}

double slowest(const std::vector<std::uint32_t>& slots, const std::vector<candidate>& members) {
  double time = 0;
  for (std::size_t i = 0; i < slots.size(); ++i)
    if (slots[i] > 0) time = std::max(time, slots[i] / members[i].slots_per_second);
  return time;
}

// Calls `look` with each way to divide `left` slots among the members from `i` on.
template <class Look>
void each_division(std::vector<std::uint32_t>& slots, std::size_t i, std::uint32_t left, const Look& look) {
  if (i + 1 == slots.size()) {
    slots[i] = left;
    return look(slots);
  }
  for (slots[i] = 0; slots[i] <= left; ++slots[i]) each_division(slots, i + 1, left - slots[i], look);
}

struct best_division {
  double time = 1e300;
  std::size_t blocks = 0;
};

// By trying them all: the least time, and the fewest blocks (none above `largest`) at that time.
best_division try_all(std::uint32_t slots, const std::vector<candidate>& members, std::uint32_t largest) {
  best_division best;
  std::vector<std::uint32_t> division(members.size());
  each_division(division, 0, slots, [&](const auto& d) {
    const auto time = slowest(d, members);
    std::size_t blocks = 0;
    for (const auto n : d) blocks += n / largest + static_cast<std::size_t>(std::popcount(n % largest));
    if (time < best.time || (time == best.time && blocks < best.blocks)) best = {time, blocks};
  });
  return best;
}

std::set<block> blocks_in(const plan_member& m) { return {m.blocks.begin(), m.blocks.end()}; }

// Slots that are with the same member in both plans.
std::uint32_t unmoved(const std::vector<plan_member>& a, const std::vector<plan_member>& b) {
  std::map<std::uint32_t, incarnation> before;
  for (const auto& m : a)
    for (const auto& x : m.blocks)
      for (auto s = x.first; s < x.end(); ++s) before[s] = m.who;
  std::uint32_t same = 0;
  for (const auto& m : b)
    for (const auto& x : m.blocks)
      for (auto s = x.first; s < x.end(); ++s) same += before[s] == m.who ? 1 : 0;
  return same;
}

}  // namespace

TEST_CASE("three equal members share sixteen slots in as few blocks as the least time allows") {
  const auto plan = plan_blocks(16, {{life(3)}, {life(1)}, {life(2)}});
  REQUIRE(plan.size() == 3);
  CHECK(covers_exactly(plan, 16));
  CHECK(std::is_sorted(plan.begin(), plan.end(), [](auto& a, auto& b) { return a.who < b.who; }));
  const auto shares = slots_of(plan);
  CHECK(std::multiset<std::uint32_t>(shares.begin(), shares.end()) == std::multiset<std::uint32_t>{4, 6, 6});
  CHECK(blocks_of(plan) == 5);  // 4+2, 4+2, 4
}

TEST_CASE("slots follow what members can do") {
  CHECK(slots_of(plan_blocks(16, {{life(1), 3}, {life(2), 1}})) == std::vector<std::uint32_t>{12, 4});
}

TEST_CASE("a member without which the step is faster gets no slots") {
  CHECK(slots_of(plan_blocks(8, {{life(1), 1}, {life(2), 0.1}})) == std::vector<std::uint32_t>{8, 0});
  CHECK(slots_of(plan_blocks(8, {{life(1), 1}, {life(2), 0}})) == std::vector<std::uint32_t>{8, 0});
}

TEST_CASE("where no speed is known all count alike") {
  CHECK(slots_of(plan_blocks(8, {{life(1), 0}, {life(2), std::nan("")}})) ==
        std::vector<std::uint32_t>{4, 4});
}

TEST_CASE("no block is larger than one pass takes") {
  const auto plan = plan_blocks(16, equals(2), 2);
  CHECK(covers_exactly(plan, 16));
  CHECK(slots_of(plan) == std::vector<std::uint32_t>{8, 8});
  for (const auto& m : plan)
    for (const auto& b : m.blocks) CHECK(b.size <= 2);
}

TEST_CASE("the slowest member's time is the least, and blocks are the fewest, of all divisions tried") {
  std::mt19937_64 rng(3);
  for (int i = 0; i < 300; ++i) {
    const std::uint32_t slots = 1U << (rng() % 5);
    std::vector<candidate> members;
    const auto count = 1 + rng() % 4;
    for (std::uint64_t m = 0; m < count; ++m)
      members.push_back({life(m + 1), rng() % 2 == 0 ? 1.0 : 0.1 * static_cast<double>(1 + rng() % 30)});
    const std::uint32_t largest = 1U << (rng() % 5);
    const auto plan = plan_blocks(slots, members, largest);
    const auto best = try_all(slots, members, largest);
    CHECK(covers_exactly(plan, slots));
    CHECK(slowest(slots_of(plan), members) == best.time);
    CHECK(blocks_of(plan) == best.blocks);
  }
}

TEST_CASE("what is kept stays where it is, and only the rest is split anew") {
  const auto plan = plan_blocks(16, {{life(1), 1, {}, 0, {{0, 4}, {4, 1}}}, {life(2), 1, {}, 0, {{8, 4}}}});
  CHECK(covers_exactly(plan, 16));
  CHECK(blocks_in(plan[0]).contains({0, 4}));
  CHECK(blocks_in(plan[0]).contains({4, 1}));
  CHECK(blocks_in(plan[1]).contains({8, 4}));
  CHECK(slots_of(plan) == std::vector<std::uint32_t>{8, 8});
}

TEST_CASE("what a slow member keeps is no reason to load the others unevenly") {
  auto members = equals(3);
  members[0].slots_per_second = 0.1;
  members[0].kept = {{0, 8}};
  CHECK(slots_of(plan_blocks(16, members)) == std::vector<std::uint32_t>{8, 4, 4});
}

TEST_CASE("any members, any speeds and any kept blocks give a partition, none done later than need be") {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t slots = 1U << (rng() % 7);
    const auto count = 1 + rng() % 9;
    std::vector<candidate> members;
    for (std::uint64_t m = 0; m < count; ++m)
      members.push_back({life(m + 1), 0.1 + static_cast<double>(rng() % 10)});
    std::vector<block> cover = aligned_cover(0, slots);
    while (rng() % 3 != 0) {  // split blocks at random, then let some be kept
      auto& b = cover[rng() % cover.size()];
      if (b.size == 1) break;
      b.size /= 2;
      cover.push_back({b.end(), b.size});
    }
    for (const auto& b : cover)
      if (rng() % 2 == 0) members[rng() % count].kept.push_back(b);
    const auto plan = plan_blocks(slots, members);
    CHECK(covers_exactly(plan, slots));
    // Were those who were given more than they kept to be done any earlier, slots would be left over.
    double bound = 0;
    for (std::size_t m = 0; m < count; ++m) {
      for (const auto& b : members[m].kept) CHECK(blocks_in(plan[m]).contains(b));
      if (slots_of(plan[m]) > slots_of({members[m].who, members[m].kept}))
        bound = std::max(bound, slots_of(plan[m]) / members[m].slots_per_second);
    }
    if (bound == 0) continue;
    std::uint32_t earlier = 0;
    for (const auto& m : members) {
      auto n = slots_of({m.who, m.kept});
      while ((n + 1) / m.slots_per_second < bound) ++n;
      earlier += n;
    }
    CHECK(earlier < slots);
  }
}

TEST_CASE("the same members at the same speeds keep all their blocks") {
  std::mt19937_64 rng(5);
  for (int i = 0; i < 200; ++i) {
    std::vector<candidate> members;
    for (std::uint64_t m = 0; m < 1 + rng() % 7; ++m)
      members.push_back({life(m + 1), 0.1 + static_cast<double>(rng() % 10)});
    const auto plan = plan_blocks(64, members);
    std::shuffle(members.begin(), members.end(), rng);
    CHECK(plan_blocks(64, members, 0, plan) == plan);
  }
}

TEST_CASE("who goes leaves its blocks to the others, who keep theirs") {
  const auto before = plan_blocks(16, equals(4));
  auto members = equals(4);
  members.pop_back();
  const auto after = plan_blocks(16, members, 0, before);
  CHECK(covers_exactly(after, 16));
  CHECK(unmoved(before, after) == 12);
}

TEST_CASE("a small change of speed moves few slots") {
  auto members = equals(4);
  const auto before = plan_blocks(64, members);
  members[1].slots_per_second = 0.9;
  const auto after = plan_blocks(64, members, 0, before);
  CHECK(slots_of(after)[1] < 16);
  CHECK(unmoved(before, after) >= 62);
}

TEST_CASE("a newcomer's slots come from the others, who keep most of theirs") {
  const auto before = plan_blocks(16, equals(2));
  const auto after = plan_blocks(16, equals(3), 0, before);
  CHECK(covers_exactly(after, 16));
  CHECK(unmoved(before, after) >= 10);
}
