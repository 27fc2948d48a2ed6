#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "coordinator/logic/failure_domains.hpp"
#include "coordinator/logic/planner.hpp"

using namespace perdura;
using namespace perdura::coordinator;

namespace {

incarnation life(std::uint64_t n) { return {n, n}; }

std::vector<candidate> members_at(const std::vector<node_labels>& places) {
  std::vector<candidate> members;
  for (const auto& p : places) members.push_back({life(members.size() + 1), 1, p});
  return members;
}

std::vector<candidate> unlabelled(std::size_t count) { return members_at(std::vector<node_labels>(count)); }

std::vector<std::uint32_t> alike(std::size_t tiles) { return std::vector<std::uint32_t>(tiles, 1); }

std::vector<double> held_by(const tile_map& map, const std::vector<std::uint32_t>& weights,
                            std::size_t members) {
  std::vector<double> held(members);
  for (std::size_t t = 0; t < map.size(); ++t)
    for (const auto m : map[t]) held[m] += weights[t];
  return held;
}

std::vector<double> owned_by(const tile_map& map, const std::vector<std::uint32_t>& weights,
                             std::size_t members) {
  std::vector<double> owned(members);
  for (std::size_t t = 0; t < map.size(); ++t) owned[map[t].front()] += weights[t];
  return owned;
}

double spread_of(const std::vector<double>& loads) {
  const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
  return *most - *least;
}

bool has_distinct(const std::vector<member_index>& holders, std::size_t count, std::size_t members) {
  const std::set<member_index> distinct(holders.begin(), holders.end());
  return holders.size() == count && distinct.size() == count && *distinct.rbegin() < members;
}

nearness nearest_pair(const std::vector<member_index>& holders, const std::vector<candidate>& members) {
  auto least = nearness::apart;
  for (std::size_t i = 0; i < holders.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      least = std::min(least, nearness_of(members[holders[i]].at, members[holders[j]].at));
  return least;
}

// Copies that the second map has and the first has not.
std::size_t copies(const tile_map& before, const tile_map& after) {
  std::size_t n = 0;
  for (std::size_t t = 0; t < after.size(); ++t)
    for (const auto m : after[t])
      n += std::find(before[t].begin(), before[t].end(), m) == before[t].end() ? 1 : 0;
  return n;
}

plan plan_of(const std::vector<candidate>& members, tile_map map) {
  plan p;
  for (const auto& m : members) p.members.push_back({m.who, {}});
  p.holders = std::move(map);
  return p;
}

}  // namespace

TEST_CASE("replicated tiles are held by all, and owners are spread evenly") {
  const auto map = plan_tiles(alike(22), unlabelled(3), 0);
  for (const auto& holders : map) CHECK(has_distinct(holders, 3, 3));
  for (const auto n : owned_by(map, alike(22), 3)) CHECK((n == 7 || n == 8));
}

TEST_CASE("tiles stay with those that hold them; what is missing is filled up") {
  const auto map = plan_tiles(alike(2), unlabelled(3), 2, {{0, 1}, {1}});
  CHECK(std::set<member_index>(map[0].begin(), map[0].end()) == std::set<member_index>{0, 1});
  CHECK(map[1].size() == 2);
  CHECK(std::find(map[1].begin(), map[1].end(), 1) != map[1].end());
}

TEST_CASE("holders and owners are even in bytes, whatever the sizes of tiles") {
  std::mt19937_64 rng(11);
  std::vector<std::uint32_t> weights;
  for (int t = 0; t < 200; ++t) weights.push_back(100 + static_cast<std::uint32_t>(rng() % 900));
  for (const std::uint32_t replicas : {1U, 2U, 3U}) {
    const auto map = plan_tiles(weights, unlabelled(7), replicas);
    for (const auto& holders : map) CHECK(has_distinct(holders, replicas, 7));
    CHECK(spread_of(held_by(map, weights, 7)) <= 1000);
    CHECK(spread_of(owned_by(map, weights, 7)) <= 2000);
  }
}

TEST_CASE("a member with twice the memory holds twice as much") {
  auto members = unlabelled(4);
  for (std::size_t m = 0; m < 4; ++m) members[m].memory_bytes = m == 2 ? 16 : 8;
  const auto held = held_by(plan_tiles(alike(100), members, 2), alike(100), 4);
  CHECK(held == std::vector<double>{40, 40, 80, 40});
}

TEST_CASE("two copies are never on one host where there are two hosts") {
  // Three devices on one machine, one on another.
  const auto members = members_at({{"a", "", ""}, {"a", "", ""}, {"a", "", ""}, {"b", "", ""}});
  for (const auto& holders : plan_tiles(alike(9), members, 2))
    CHECK(nearest_pair(holders, members) != nearness::same_host);
}

TEST_CASE("on one host alone copies are still with different members") {
  const auto members = members_at({{"a", "", ""}, {"a", "", ""}, {"a", "", ""}});
  const auto map = plan_tiles(alike(9), members, 2);
  for (const auto& holders : map) CHECK(has_distinct(holders, 2, 3));
  CHECK(held_by(map, alike(9), 3) == std::vector<double>{6, 6, 6});
}

TEST_CASE("copies are in different racks, then in different zones") {
  std::vector<node_labels> places;
  for (int i = 0; i < 12; ++i)
    places.push_back({"h" + std::to_string(i / 2), "r" + std::to_string(i / 4), i < 8 ? "east" : "west"});
  const auto members = members_at(places);
  for (const auto& holders : plan_tiles(alike(60), members, 2))
    CHECK(nearest_pair(holders, members) == nearness::apart);
  for (const auto& holders : plan_tiles(alike(60), members, 3))
    CHECK(nearest_pair(holders, members) >= nearness::same_zone);
}

TEST_CASE("a lone member in a zone of its own does not get a copy of everything") {
  std::vector<node_labels> places(10, {"", "", "east"});
  places.back().zone = "west";
  const auto map = plan_tiles(alike(100), members_at(places), 2);
  CHECK(held_by(map, alike(100), 10).back() <= 41);  // twice its share, and one more
  for (const auto& holders : map) CHECK(has_distinct(holders, 2, 10));
}

TEST_CASE("racks of one name in two zones are two racks, and hosts of no name are all different") {
  CHECK(nearness_of({"", "r1", "east"}, {"", "r1", "west"}) == nearness::apart);
  CHECK(nearness_of({"", "r1", "east"}, {"", "r1", "east"}) == nearness::same_rack);
  CHECK(nearness_of({"", "", "east"}, {"", "", "east"}) == nearness::same_zone);
  CHECK(nearness_of({}, {}) == nearness::apart);
  CHECK(nearness_of({"h", "", ""}, {"h", "", ""}) == nearness::same_host);
}

TEST_CASE("any places: as many different hosts as there are, holders distinct, no host crowded") {
  std::mt19937_64 rng(13);
  for (int i = 0; i < 300; ++i) {
    std::vector<node_labels> places;
    const auto count = 1 + rng() % 10;
    for (std::uint64_t m = 0; m < count; ++m) {
      const auto host = rng() % 6;
      places.push_back({rng() % 4 == 0 ? "" : "h" + std::to_string(host),
                        rng() % 3 == 0 ? "" : "r" + std::to_string(host / 2),
                        rng() % 2 == 0 ? "" : "z" + std::to_string(host / 4)});
    }
    const auto members = members_at(places);
    const failure_domains domains(members);
    const auto replicas = static_cast<std::uint32_t>(1 + rng() % 4);
    const auto wanted = std::min<std::size_t>(replicas, count);
    const auto weights = alike(20);
    tile_map before;
    for (int round = 0; round < 2; ++round) {
      const auto map = plan_tiles(weights, members, replicas, before);
      for (const auto& holders : map) {
        CHECK(has_distinct(holders, wanted, count));
        std::set<std::uint32_t> hosts;
        for (const auto m : holders) hosts.insert(domains.range_of(domain::host, m).first);
        if (wanted < count) CHECK(hosts.size() == std::min<std::size_t>(wanted, domains.count(domain::host)));
      }
      // Then from any holders at all.
      before.assign(weights.size(), {});
      for (auto& holders : before)
        for (member_index m = 0; m < count; ++m)
          if (rng() % 3 == 0) holders.push_back(m);
    }
  }
}

TEST_CASE("what is well placed stays: planning again moves nothing") {
  std::vector<node_labels> places;
  for (int i = 0; i < 9; ++i) places.push_back({"h" + std::to_string(i / 3), "", ""});
  const auto members = members_at(places);
  const auto map = plan_tiles(alike(40), members, 2);
  CHECK(plan_tiles(alike(40), members, 2, map) == map);
}

TEST_CASE("a newcomer takes its share, and nothing else moves") {
  const auto five = unlabelled(5), six = unlabelled(6);
  const auto before = plan_tiles(alike(60), five, 2);
  const auto after = plan_tiles(alike(60), six, 2, before);
  CHECK(held_by(after, alike(60), 6)[5] == 20);
  CHECK(copies(before, after) == 20);
  CHECK(owned_by(after, alike(60), 6)[5] == 10);
}

TEST_CASE("after a loss little more than what is missing is copied, and all hold alike again") {
  const auto before = plan_tiles(alike(60), unlabelled(6), 2);
  auto left = before;
  for (auto& holders : left) std::erase(holders, 5U);
  const auto after = plan_tiles(alike(60), unlabelled(5), 2, left);
  CHECK(copies(left, after) <= 24);  // of 20 missing
  CHECK(spread_of(held_by(after, alike(60), 5)) <= 1);
}

TEST_CASE("two copies that came to be on one host are parted") {
  const auto members = members_at({{"a", "", ""}, {"a", "", ""}, {"b", "", ""}});
  const auto map = plan_tiles(alike(1), members, 2, {{0, 1}});
  CHECK(nearest_pair(map[0], members) == nearness::apart);
  CHECK(map[0].front() == 0);  // of two alike the first stays
}

TEST_CASE("of more holders than wanted those go that share a host, else those that hold most") {
  const auto members = members_at({{"a", "", ""}, {"b", "", ""}, {"a", "", ""}, {"c", "", ""}});
  auto map = plan_tiles(alike(1), members, 2, {{0, 1, 2}});
  std::sort(map[0].begin(), map[0].end());
  CHECK(map[0] == std::vector<member_index>{0, 1});
}

TEST_CASE("moves are the difference of two maps, from a holder near by") {
  const auto members = members_at({{"a", "r", ""}, {"b", "r", ""}, {"c", "s", ""}, {"a", "r", ""}});
  label_map labels;
  for (const auto& m : members) labels[m.who] = m.at;
  const auto before = plan_of(unlabelled(3), {{2, 1, 0}, {2, 1}, {2}});
  const auto after = plan_of(members, {{2, 3, 0}, {1, 3}, {1, 2}});
  const auto moves = tile_moves(before, after, labels);
  CHECK(moves == std::vector<tile_move>{{tile_id(0), life(1), life(4)},    // on the same host
                                        {tile_id(1), life(2), life(4)},    // in the same rack
                                        {tile_id(2), life(3), life(2)}});  // the only one
}

TEST_CASE("sources that are equally near share the work, in bytes") {
  tile_map had(40, {0, 1}), has(40, {0, 2});
  const auto moves = tile_moves(plan_of(unlabelled(2), had), plan_of(unlabelled(3), has), {});
  CHECK(moves.size() == 40);
  CHECK(std::count_if(moves.begin(), moves.end(), [](const auto& m) { return m.from == life(1); }) == 20);
  std::vector<std::uint32_t> weights(40, 1);
  weights[0] = 39;
  const auto weighed = tile_moves(plan_of(unlabelled(2), had), plan_of(unlabelled(3), has), {}, weights);
  CHECK(std::count_if(weighed.begin(), weighed.end(), [](const auto& m) { return m.from == life(1); }) == 1);
}

TEST_CASE("any two maps: a move for each new holder, from one that held the tile, and none else") {
  std::mt19937_64 rng(17);
  for (int i = 0; i < 300; ++i) {
    std::vector<candidate> all = unlabelled(8), old, fresh;
    for (const auto& m : all) {
      if (rng() % 3 != 0) old.push_back(m);
      if (rng() % 3 != 0) fresh.push_back(m);
    }
    if (old.empty() || fresh.empty()) continue;
    const auto before = plan_of(old, plan_tiles(alike(12), old, 2));
    const auto after =
        plan_of(fresh, plan_tiles(alike(12), fresh, 2, holders_among(before, plan_of(fresh, {}).members)));
    std::set<std::pair<std::uint32_t, incarnation>> wanted, moved;
    for (std::uint32_t t = 0; t < 12; ++t)
      for (const auto m : after.holders[t])
        if (!before.holds(after.members[m].who, tile_id(t))) wanted.emplace(t, after.members[m].who);
    const auto moves = tile_moves(before, after, {});
    for (const auto& m : moves) {
      CHECK(before.holds(m.from, m.tile));
      moved.emplace(m.tile.value, m.to);
    }
    CHECK(moved == wanted);
    CHECK(moves.size() == wanted.size());
  }
}
