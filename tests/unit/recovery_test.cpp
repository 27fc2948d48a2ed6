#include "coordinator/logic/recovery.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace perdura;
using namespace perdura::coordinator;

namespace {

const incarnation alice{1, 1}, bob{2, 2}, carol{3, 3};
constexpr era first_era{term_number(1), 1}, next_era{term_number(1), 2};

verdict verdict_of(std::uint64_t step) {
  verdict v;
  v.step = step_number(step);
  v.timeline = timeline_number(1);
  v.plan = v.next_plan = {first_era, 0};
  v.outcome.gradient_norm = static_cast<double>(step);
  return v;
}

// Two tiles, four slots; alice computes [0,2), bob [2,4).
recovery_input running() {
  recovery_input in;
  in.at = next_era;
  in.timeline = timeline_number(1);
  in.slots = 4;
  in.tiles = 2;
  in.effective.id = {first_era, 0};
  in.effective.members = {{alice, {{0, 2}}}, {bob, {{2, 2}}}};
  in.effective.holders = {{0, 1}, {1, 0}};
  in.restore = {step_number(3), timeline_number(1)};
  in.restore_verdict = verdict_of(3);
  return in;
}

inventory_report holder(const incarnation& who, std::uint64_t newest, std::uint64_t version,
                        bool has_gradient) {
  inventory_report r;
  r.at = next_era;
  r.who = who;
  r.timeline = timeline_number(1);
  r.newest = verdict_of(newest);
  r.partials_step = step_number(newest + 1);
  for (std::uint32_t t = 0; t < 2; ++t)
    r.tiles.push_back({tile_id(t), step_number(version), true, has_gradient});
  return r;
}

}  // namespace

TEST_CASE("nobody left: no decision") { CHECK_FALSE(decide(running())); }

TEST_CASE("a survivor keeps its blocks, and only the dead one's are recomputed") {
  auto in = running();
  in.inventories = {holder(alice, 7, 7, false)};
  in.inventories[0].blocks = {{{0, 2}, block_status::computed, {}}};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::completed);
  CHECK(d->order.settled == step_number(7));
  CHECK(d->recomputed_slots == 2);
  REQUIRE(d->order.next.members.size() == 1);
  const auto& blocks = d->order.next.members[0].blocks;
  CHECK(std::find(blocks.begin(), blocks.end(), block{0, 2}) != blocks.end());
  CHECK_FALSE(d->reason.empty());
}

TEST_CASE("what a survivor has not begun is not lost, unless it may have handed it over") {
  auto in = running();
  in.inventories = {holder(alice, 7, 7, false), holder(bob, 7, 7, false)};
  in.inventories[0].blocks = {{{0, 2}, block_status::computed, {}}};
  auto d = decide(in);
  REQUIRE(d);
  CHECK(d->recomputed_slots == 0);
  in.hands_over = true;
  d = decide(in);
  REQUIRE(d);
  CHECK(d->recomputed_slots == 2);
}

TEST_CASE("a verdict that one survivor observed stands for all") {
  auto in = running();
  in.inventories = {holder(alice, 8, 8, false), holder(bob, 7, 7, true)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::completed);
  CHECK(d->order.settled == step_number(8));
  CHECK(d->order.standing == verdict_of(8));
  CHECK(d->order.next.members.size() == 2);
}

TEST_CASE("so does one that only the record has, from a worker that died") {
  auto in = running();
  in.record = verdict_of(8);
  in.inventories = {holder(bob, 7, 7, true)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->order.settled == step_number(8));
  CHECK(d->order.standing == verdict_of(8));
}

TEST_CASE("gradients that all survivors hold are not computed again") {
  auto in = running();
  in.inventories = {holder(alice, 7, 7, true)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->order.reduced.size() == 2);
  CHECK(d->recomputed_slots == 0);
}

TEST_CASE("a dead worker's block that its receivers hold is an orphan, not lost") {
  auto in = running();
  in.inventories = {holder(alice, 7, 7, false)};
  in.inventories[0].blocks = {{{0, 2}, block_status::computed, {}},
                              {{2, 2}, block_status::received, {tile_id(0), tile_id(1)}}};
  auto d = decide(in);
  REQUIRE(d);
  CHECK(d->order.orphans == std::vector<block>{{2, 2}});
  CHECK(d->recomputed_slots == 0);

  in.inventories[0].blocks[1].tiles.pop_back();  // received for one tile only
  d = decide(in);
  REQUIRE(d);
  CHECK(d->order.orphans.empty());
  CHECK(d->recomputed_slots == 2);
}

TEST_CASE("a step that was decided but that nobody can complete is redone, and must come out the same") {
  auto in = running();
  in.record = verdict_of(8);
  in.inventories = {holder(alice, 7, 7, false)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::redone);
  CHECK(d->order.settled == step_number(7));
  CHECK(d->order.expected == verdict_of(8));
}

TEST_CASE("a tile without a complete holder goes back to the checkpoint, on a new timeline") {
  auto in = running();
  in.inventories = {holder(alice, 7, 7, false)};
  in.inventories[0].tiles[1].complete = false;
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::restored);
  CHECK(d->order.timeline == timeline_number(2));
  CHECK(d->order.settled == step_number(3));
  REQUIRE(d->order.restore);
  CHECK(d->order.restore->step == step_number(3));
}

TEST_CASE("without a member of the newest plan what others hold may be outdated: the checkpoint decides") {
  auto in = running();
  in.inventories = {holder(carol, 7, 7, false)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::restored);
}

TEST_CASE("state of another timeline is no state") {
  auto in = running();
  in.timeline = timeline_number(2);
  in.inventories = {holder(alice, 7, 7, false)};
  const auto d = decide(in);
  REQUIRE(d);
  CHECK(d->how == settled_how::restored);
  CHECK(d->order.timeline == timeline_number(3));
}
