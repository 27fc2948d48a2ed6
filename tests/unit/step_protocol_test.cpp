#include "worker/logic/step_protocol.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace perdura;
using namespace perdura::worker;
namespace we = perdura::worker::effect;

namespace {

const incarnation alice{1, 1}, bob{2, 2}, carol{3, 3};
constexpr era first_era{term_number(1), 1}, second_era{term_number(1), 2};
constexpr timeline_number timeline{1};

blob bytes(char c) { return blob::copy_of(std::as_bytes(std::span(&c, 1))); }

plan two_members(plan_id id) {
  plan p;
  p.id = id;
  p.members = {{alice, {{0, 2}}}, {bob, {{2, 2}}}};
  p.holders = {{0, 1}};  // one tile, owned by alice
  return p;
}

// A worker with four slots and one tile, and what it asked for since it was last looked at.
struct bench {
  explicit bench(incarnation self, broken_rules broken = {}, const job_config& j = job())
      : logic(self, j, 1, out, broken), me(self) {}

  static job_config job() {
    job_config j;
    j.batch.slots = 4;
    j.steps = 100;
    j.checkpoint.interval_steps = 10;
    return j;
  }
  void order(coordinator_order o, std::uint32_t term = 1) {
    logic.order({term_number(term), me, std::move(o)});
  }
  template <class T>
  std::vector<T> take() {
    std::vector<T> found;
    for (const auto& e : out)
      if (const auto* x = std::get_if<T>(&e)) found.push_back(*x);
    return found;
  }
  template <class Body>
  std::vector<frame> sent() {
    std::vector<frame> found;
    for (const auto& s : take<we::send>())
      if (std::holds_alternative<Body>(s.what.body)) found.push_back(s.what);
    return found;
  }
  template <class Message>
  std::vector<Message> reported() {
    std::vector<Message> found;
    for (const auto& r : take<we::report>())
      if (const auto* m = std::get_if<Message>(&r.what)) found.push_back(*m);
    return found;
  }
  // Restored to step 0 as a member of the plan, and started.
  void start() {
    logic.link_up(me == alice ? bob : alice);
    order(fence_order{first_era, timeline_number(0)});
    recover_order r;
    r.at = first_era;
    r.timeline = timeline;
    r.next = two_members({first_era, 0});
    r.restore = restore_source{};
    order(r);
    logic.restored(first_era);
    order(start_order{first_era});
    out.clear();
  }
  void hear(const incarnation& from, frame_body body, std::uint64_t step,
            std::optional<verdict> observed = {}, era at = first_era) {
    logic.received({timeline, at, {at, 0}, step_number(step), from, observed, std::move(body)});
  }
  // alice, up to where only bob's vote lacks.
  void reduce_step(std::uint64_t step) {
    logic.block_computed(step_number(step), {0, 2}, {1.0, {bytes('a')}});
    hear(bob, partial_frame{{2, 2}, tile_id(0), 1.0, bytes('b')}, step);
    logic.tile_reduced(step_number(step), tile_id(0), {tile_id(0), 4.0, true, 2.0, bytes('g')});
  }
  static vote_frame vote() { return {{{tile_id(0), 4.0, true, 2.0}}, {}}; }

  effects out;
  step_protocol logic;
  incarnation me;
};

}  // namespace

TEST_CASE("a member computes its blocks once its parameters are there") {
  bench a(alice);
  a.logic.link_up(bob);
  a.order(fence_order{first_era, timeline_number(0)});
  recover_order r;
  r.at = first_era;
  r.timeline = timeline;
  r.next = two_members({first_era, 0});
  r.restore = restore_source{};
  a.order(r);
  CHECK(a.take<we::restore>().size() == 1);
  CHECK(a.take<we::compute>().empty());
  a.logic.restored(first_era);
  const auto asked = a.take<we::compute>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].slots == block{0, 2});
  CHECK(asked[0].step == step_number(1));
}

TEST_CASE("step 0 is loaded from a checkpoint where a verdict stands with it, else made of the seed") {
  for (const bool is_imported : {false, true}) {
    bench a(alice);
    a.logic.link_up(bob);
    a.order(fence_order{first_era, timeline_number(0)});
    recover_order r;
    r.at = first_era;
    r.timeline = timeline;
    r.next = two_members({first_era, 0});
    r.restore = restore_source{};
    if (is_imported) r.standing = verdict{};
    a.order(r);
    const auto loads = a.take<we::restore>();
    REQUIRE(loads.size() == 1);
    CHECK(loads[0].is_from_seed != is_imported);
    a.logic.restored(first_era);
    CHECK(a.take<we::snapshot>().empty());
    const auto asked = a.take<we::compute>();
    REQUIRE(asked.size() == 1);
    CHECK(asked[0].step == step_number(1));
  }
}

TEST_CASE("a plan is adopted only when links to all its members are up") {
  bench a(alice);
  a.order(fence_order{first_era, timeline_number(0)});
  recover_order r;
  r.at = first_era;
  r.timeline = timeline;
  r.next = two_members({first_era, 0});
  r.restore = restore_source{};
  a.order(r);
  CHECK(a.reported<plan_adopted>().empty());
  a.logic.link_up(bob);
  CHECK(a.reported<plan_adopted>().size() == 1);
}

TEST_CASE("the owner reduces when the blocks of all slots are there, in their order") {
  bench a(alice);
  a.start();
  a.hear(bob, partial_frame{{2, 2}, tile_id(0), 1.0, bytes('b')}, 1);
  CHECK(a.take<we::reduce>().empty());
  a.logic.block_computed(step_number(1), {0, 2}, {1.0, {bytes('a')}});
  const auto asked = a.take<we::reduce>();
  REQUIRE(asked.size() == 1);
  REQUIRE(asked[0].partials.size() == 2);
  CHECK(asked[0].partials[0].slots == block{0, 2});
  CHECK(asked[0].partials[1].slots == block{2, 2});
}

TEST_CASE("a replica sends its blocks to the owner and votes when the gradient comes back") {
  bench b(bob);
  b.start();
  b.logic.block_computed(step_number(1), {2, 2}, {1.0, {bytes('b')}});
  CHECK(b.sent<partial_frame>().size() == 1);
  CHECK(b.sent<vote_frame>().empty());
  b.hear(alice, reduced_frame{tile_id(0), 4.0, true, 2.0, bytes('g')}, 1);
  CHECK(b.sent<vote_frame>().size() == 1);
}

TEST_CASE("a step is applied under the verdict of all votes, never before") {
  bench a(alice);
  a.start();
  a.reduce_step(1);
  CHECK(a.sent<vote_frame>().size() == 1);
  CHECK(a.take<we::apply>().empty());
  a.hear(bob, bench::vote(), 1);
  const auto asked = a.take<we::apply>();
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].outcome.gradient_norm == 2.0);
  REQUIRE(a.logic.newest());
  CHECK(a.logic.newest()->step == step_number(1));
  CHECK(a.reported<verdict_report>().size() == 1);
}

TEST_CASE("a verdict that a later frame carries is as good as the votes") {
  bench a(alice);
  a.start();
  a.reduce_step(1);
  a.hear(bob, bench::vote(), 1);
  const auto decided = *a.logic.newest();

  bench b(bob);
  b.start();
  b.logic.block_computed(step_number(1), {2, 2}, {1.0, {bytes('b')}});
  b.hear(alice, reduced_frame{tile_id(0), 4.0, true, 2.0, bytes('g')}, 1);
  CHECK_FALSE(b.logic.newest());
  b.hear(alice, verdict_note{}, 2, decided);
  CHECK(b.logic.newest() == decided);
  CHECK(b.take<we::apply>().size() == 1);
}

TEST_CASE("after the promise frames of the older era are dropped and counted, newer ones wait") {
  bench a(alice);
  a.start();
  a.reduce_step(1);
  a.order(fence_order{second_era, timeline});
  a.hear(bob, bench::vote(), 1);
  CHECK_FALSE(a.logic.newest());
  CHECK(a.logic.frames_dropped() == 1);

  a.hear(bob, bench::vote(), 1, {}, second_era);
  recover_order r;
  r.at = second_era;
  r.timeline = timeline;
  r.next = two_members({second_era, 0});
  r.settled = step_number(0);
  a.order(r);
  CHECK_FALSE(a.logic.newest());
  a.order(start_order{second_era});
  CHECK(a.logic.newest());  // its own gradient was kept, bob's vote had waited
}

TEST_CASE("an inventory says what is held: versions, gradients, blocks") {
  bench a(alice);
  a.start();
  a.logic.block_computed(step_number(1), {0, 2}, {1.0, {bytes('a')}});
  a.hear(bob, partial_frame{{2, 2}, tile_id(0), 1.0, bytes('b')}, 1);
  a.order(fence_order{second_era, timeline});
  auto said = a.reported<inventory_report>();
  REQUIRE(said.size() == 1);
  CHECK(said[0].tiles.size() == 1);
  CHECK(said[0].tiles[0].complete);
  CHECK_FALSE(said[0].tiles[0].has_gradient);
  CHECK(said[0].partials_step == step_number(1));
  CHECK(said[0].blocks.size() == 2);
}

TEST_CASE("orders of a lower term than the highest seen are refused") {
  bench a(alice);
  a.order(fence_order{first_era, timeline}, 5);
  a.out.clear();
  a.order(fence_order{second_era, timeline}, 4);
  CHECK(a.out.empty());
}

TEST_CASE("a broken link to a member is complained about once, and again to a new connection") {
  bench a(alice);
  a.start();
  a.logic.link_down(bob, "gone");
  CHECK(a.reported<link_complaint>().size() == 1);
  a.out.clear();
  a.logic.coordinator_connected();
  CHECK(a.reported<link_complaint>().size() == 1);
  a.logic.link_up(carol);
  a.out.clear();
  a.logic.link_down(carol, "gone");  // no member
  CHECK(a.reported<link_complaint>().empty());
}

TEST_CASE("an order that is meant for another life is refused") {
  for (const bool is_broken : {false, true}) {
    bench a(alice, is_broken ? broken_rules(rule::own_life) : broken_rules{});
    a.start();
    a.logic.order({term_number(1), carol, fenced_order{first_era}});
    CHECK(a.take<we::stop>().size() == (is_broken ? 1 : 0));
  }
}

TEST_CASE("a fenced worker ends") {
  bench a(alice);
  a.start();
  a.order(fenced_order{first_era});
  CHECK(a.take<we::stop>().size() == 1);
}

TEST_CASE("a newcomer is fed tile by tile, applies what it is fed, and says when it is ready") {
  bench a(alice);
  a.start();
  proposal_order p;
  p.timeline = timeline;
  p.base = {first_era, 0};
  p.next = two_members({first_era, 1});
  p.next.members.push_back({carol, {}});
  p.next.holders = {{0, 1, 2}};
  p.moves = {{tile_id(0), alice, carol}};
  a.order(p);
  a.logic.link_up(carol);
  CHECK(a.take<we::copy>().empty());
  a.hear(carol, feed_note{{first_era, 1}, tile_id(0), {}}, 1);
  REQUIRE(a.take<we::copy>().size() == 1);
  a.reduce_step(1);  // while the copy is made: the gradient waits behind it
  a.out.clear();
  a.logic.tile_copied(tile_id(0), step_number(0), 1, bytes('s'));
  const auto fed = a.take<we::send>();
  REQUIRE(fed.size() == 2);
  CHECK(std::holds_alternative<tile_copy_frame>(fed[0].what.body));
  CHECK(std::holds_alternative<reduced_frame>(fed[1].what.body));

  bench c(carol);
  c.logic.link_up(alice);
  c.order(p);
  CHECK(c.sent<feed_note>().size() == 1);
  c.logic.received(fed[0].what);
  c.logic.received(fed[1].what);
  REQUIRE(c.take<we::install>().size() == 1);
  CHECK(c.sent<ready_note>().empty());
  c.logic.tile_installed(tile_id(0), step_number(0));
  CHECK(c.sent<ready_note>().empty());  // as a member it must reach all others
  c.logic.link_up(bob);
  CHECK(c.sent<ready_note>().size() == 2);
}

namespace {
// Alice feeds carol one of three tiles at a time.
proposal_order carol_learns(std::uint32_t tiles) {
  proposal_order p;
  p.timeline = timeline;
  p.base = {first_era, 0};
  p.next = two_members({first_era, 1});
  p.next.members.push_back({carol, {}});
  p.next.holders.assign(tiles, {0, 1, 2});
  for (std::uint32_t t = 0; t < tiles; ++t) p.moves.push_back({tile_id(t), alice, carol});
  return p;
}

step_protocol learner(std::uint32_t tiles, effects& out) {
  step_protocol c(carol, bench::job(), tiles, out, {}, {.copies_at_once = 1});
  c.link_up(alice);
  c.link_up(bob);
  c.order({term_number(1), carol, carol_learns(tiles)});
  return c;
}

std::vector<feed_note> notes_in(effects& out) {
  std::vector<feed_note> found;
  for (const auto& e : out)
    if (const auto* s = std::get_if<we::send>(&e))
      if (const auto* n = std::get_if<feed_note>(&s->what.body)) found.push_back(*n);
  out.clear();
  return found;
}

void copy_arrives(step_protocol& c, std::uint32_t tile, std::uint64_t version, blob state) {
  c.received({timeline,
              first_era,
              {first_era, 0},
              step_number(version),
              alice,
              {},
              tile_copy_frame{{first_era, 1}, tile_id(tile), 1, std::move(state)}});
}
}  // namespace

TEST_CASE("a learner asks for the next tile when the last is in place, and again for one that came damaged") {
  effects out;
  auto c = learner(2, out);
  auto asked = notes_in(out);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].tile == tile_id(0));
  copy_arrives(c, 0, 3, bytes('s'));
  c.tile_damaged(tile_id(0), step_number(3));
  asked = notes_in(out);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].tile == tile_id(0));
  CHECK_FALSE(asked[0].have);
  copy_arrives(c, 0, 4, bytes('s'));
  c.tile_installed(tile_id(0), step_number(4));
  asked = notes_in(out);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].tile == tile_id(1));
}

TEST_CASE("a copy whose feeder went is offered to the next feeder, who need not send it again") {
  effects out;
  auto c = learner(1, out);
  out.clear();
  copy_arrives(c, 0, 3, bytes('s'));
  c.tile_installed(tile_id(0), step_number(3));
  c.link_down(alice, "it died");
  c.link_up(alice);
  const auto asked = notes_in(out);
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].have == step_number(3));
  copy_arrives(c, 0, 3, {});
  CHECK(std::any_of(out.begin(), out.end(), [](const auto& e) {
    const auto* s = std::get_if<we::send>(&e);
    return s && std::holds_alternative<ready_note>(s->what.body);
  }));

  for (const bool has_it : {true, false}) {
    bench a(alice);
    a.start();
    a.logic.link_up(carol);
    a.order(carol_learns(1));
    a.hear(carol, feed_note{{first_era, 1}, tile_id(0), step_number(has_it ? 0 : 7)}, 1);
    CHECK(a.take<we::copy>().size() == (has_it ? 0 : 1));
    CHECK(a.sent<tile_copy_frame>().size() == (has_it ? 1 : 0));
  }
}

TEST_CASE("where gradients are sharded a block handed over in part is computed again after a fence") {
  effects out;
  auto job = bench::job();
  job.sharding = "gradients";
  bench a(alice, {}, job);
  a.start();
  a.logic.tile_computed(step_number(1), {0, 2}, tile_id(0), {{0, 2}, 1.0, bytes('a')});
  a.out.clear();
  a.order(fence_order{second_era, timeline});
  const auto reports = a.reported<inventory_report>();
  REQUIRE(reports.size() == 1);
  for (const auto& b : reports[0].blocks) CHECK(b.status == block_status::received);
}

TEST_CASE("a tile that moves off and is to come back at once is let go first, then asked for") {
  bench a(alice);
  a.start();
  const auto propose = [&](std::uint32_t sequence, std::vector<member_index> holders) {
    proposal_order p;
    p.timeline = timeline;
    p.base = {first_era, sequence - 1};
    p.next = two_members({first_era, sequence});
    p.next.holders = {std::move(holders)};
    if (sequence == 2) p.moves = {{tile_id(0), bob, alice}};
    a.order(p);
  };
  propose(1, {1});
  a.reduce_step(1);
  auto vote = bench::vote();
  vote.prepared = {first_era, 1};
  a.hear(bob, vote, 1);
  a.logic.tile_applied(step_number(1), tile_id(0));
  REQUIRE(a.logic.current()->id == plan_id{first_era, 1});
  propose(2, {1, 0});
  CHECK(a.logic.holds(tile_id(0)));
  CHECK(a.sent<feed_note>().empty());
  a.hear(bob, bench::vote(), 2);
  CHECK(a.logic.newest()->step == step_number(2));
  CHECK_FALSE(a.logic.holds(tile_id(0)));
  CHECK(a.sent<feed_note>().size() == 1);
}

TEST_CASE("a request for parameters waits for its version, and an older one is dropped") {
  auto job = bench::job();
  job.sharding = "parameters";
  bench a(alice, {}, job);
  a.start();
  a.hear(bob, parameters_request{tile_id(0)}, 1);
  CHECK(a.take<we::read_parameters>().empty());
  a.hear(bob, parameters_request{tile_id(0)}, 0);
  REQUIRE(a.take<we::read_parameters>().size() == 1);
  a.logic.parameters_read(tile_id(0), step_number(0), bytes('p'));
  CHECK(a.sent<parameters_frame>().size() == 1);
}

TEST_CASE("nobody is prepared for a plan before its learners are ready") {
  bench b(bob);
  b.start();
  proposal_order p;
  p.timeline = timeline;
  p.base = {first_era, 0};
  p.next = two_members({first_era, 1});
  p.next.members.push_back({carol, {}});
  p.next.holders = {{0, 1, 2}};
  b.order(p);
  b.logic.link_up(carol);
  b.hear(alice, reduced_frame{tile_id(0), 4.0, true, 2.0, bytes('g')}, 1);
  auto votes = b.sent<vote_frame>();
  REQUIRE(votes.size() == 1);
  CHECK(std::get<vote_frame>(votes[0].body).prepared.is_none());

  bench ready(bob);
  ready.start();
  ready.order(p);
  ready.logic.link_up(carol);
  ready.hear(carol, ready_note{{first_era, 1}}, 1);
  ready.hear(alice, reduced_frame{tile_id(0), 4.0, true, 2.0, bytes('g')}, 1);
  votes = ready.sent<vote_frame>();
  REQUIRE_FALSE(votes.empty());
  CHECK(std::get<vote_frame>(votes[0].body).prepared == plan_id{first_era, 1});
}

TEST_CASE(
    "nobody votes for the first step under a new plan before each leaver knows the verdict that named it") {
  for (const bool is_broken : {false, true}) {
    bench a(alice, is_broken ? broken_rules(rule::await_leavers) : broken_rules{});
    a.start();
    proposal_order p;
    p.timeline = timeline;
    p.base = {first_era, 0};
    p.next.id = {first_era, 1};
    p.next.members = {{alice, {{0, 4}}}};
    p.next.holders = {{0}};
    p.leavers = {bob};
    a.order(p);
    a.reduce_step(1);
    auto vote = bench::vote();
    vote.prepared = p.next.id;
    a.hear(bob, vote, 1);
    REQUIRE(a.logic.current()->id == p.next.id);
    a.logic.tile_applied(step_number(1), tile_id(0));
    a.logic.block_computed(step_number(2), {0, 4}, {1.0, {bytes('a')}});
    a.logic.tile_reduced(step_number(2), tile_id(0), {tile_id(0), 4.0, true, 2.0, bytes('g')});
    CHECK((a.logic.newest()->step == step_number(2)) == is_broken);
    a.hear(bob, verdict_ack{p.next.id}, 2);
    CHECK(a.logic.newest()->step == step_number(2));
  }
}

TEST_CASE("more frames of a newer era than can be held are dropped, and somebody is told") {
  effects out;
  step_protocol logic(alice, bench::job(), 1, out, {}, {.held_frames_max = 2, .backlog_steps_max = 8});
  for (int i = 0; i < 5; ++i)
    logic.received({timeline, second_era, {}, step_number(1), bob, {}, verdict_note{}});
  CHECK(logic.frames_dropped() == 3);
}
