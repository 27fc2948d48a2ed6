#include "coordinator/logic/supervisor.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace ce = perdura::coordinator::effect;

namespace {

const incarnation alice{1, 1}, bob{2, 2}, carol{3, 3};

worker_hello hello(const incarnation& who, std::uint64_t numeric_class = 7) {
  worker_hello h;
  h.who = who;
  h.numeric_class = numeric_class;
  return h;
}

struct bench {
  explicit bench(durable_state known = {}, std::uint32_t term = 1, const job_config& what = job())
      : logic(term_number(term), what, options(), known, {}, out, now) {}
  static job_config job() {
    job_config j;
    j.name = "test";
    j.batch.slots = 4;
    j.steps = 100;
    return j;
  }
  static supervisor_options options() {
    supervisor_options o;
    o.tiles = 1;
    return o;
  }
  template <class Order>
  std::vector<std::pair<incarnation, Order>> sent() const {
    std::vector<std::pair<incarnation, Order>> found;
    for (const auto& e : out)
      if (const auto* s = std::get_if<ce::send>(&e))
        if (const auto* o = std::get_if<Order>(s->order.get())) found.emplace_back(s->to, *o);
    return found;
  }
  bool noted(event_kind kind) const {
    return std::any_of(out.begin(), out.end(), [&](const auto& e) {
      const auto* n = std::get_if<ce::note>(&e);
      return n && n->what.kind == kind && !n->what.reason.empty();
    });
  }
  void pass(std::chrono::milliseconds time) {
    now += time;
    logic.tick(now);
  }
  // An empty inventory from each, then adoption.
  void settle(std::vector<incarnation> all) {
    for (const auto& who : all) {
      inventory_report r;
      r.at = logic.state().at;
      r.who = who;
      logic.received(r, now);
    }
    for (const auto& who : all) logic.received(plan_adopted{logic.state().at, who}, now);
  }
  void run(std::vector<incarnation> all) {
    gather(all);
    REQUIRE(logic.where() == stage::running);
    out.clear();
  }
  void gather(std::vector<incarnation> all) {
    for (const auto& who : all) logic.arrived(hello(who), {}, now);
    pass(1s);
    settle(all);
  }
  verdict verdict_of(std::uint64_t step, plan_id next) const {
    verdict v;
    v.step = step_number(step);
    v.timeline = logic.state().timeline;
    v.plan = logic.state().current.id;
    v.next_plan = next;
    return v;
  }

  effects out;
  time_point now{};
  supervisor logic;
};

}  // namespace

TEST_CASE("a job waits for its workers to gather, then restores from the seed on timeline 1") {
  bench b;
  b.logic.arrived(hello(alice), {}, b.now);
  CHECK(b.logic.where() == stage::waiting);
  b.logic.arrived(hello(bob), {}, b.now);
  b.pass(1s);
  CHECK(b.logic.where() == stage::fencing);
  CHECK(b.sent<fence_order>().size() == 2);
  b.settle({alice, bob});
  CHECK(b.logic.where() == stage::running);
  CHECK(b.logic.state().timeline == timeline_number(1));
  CHECK(b.sent<start_order>().size() == 2);
  CHECK(b.noted(event_kind::plan_started));
}

TEST_CASE("the era is persisted before anybody is asked to promise it") {
  bench b;
  b.logic.arrived(hello(alice), {}, b.now);
  b.pass(1s);
  const auto persisted = std::find_if(b.out.begin(), b.out.end(), [&](const auto& e) {
    const auto* p = std::get_if<ce::persist>(&e);
    return p && p->state->at == b.logic.state().at;
  });
  const auto fenced = std::find_if(b.out.begin(), b.out.end(), [](const auto& e) {
    const auto* s = std::get_if<ce::send>(&e);
    return s && std::holds_alternative<fence_order>(*s->order);
  });
  CHECK(persisted < fenced);
}

TEST_CASE("a plan starts only when all its members have adopted it") {
  bench b;
  b.logic.arrived(hello(alice), {}, b.now);
  b.logic.arrived(hello(bob), {}, b.now);
  b.pass(1s);
  for (const auto& who : {alice, bob}) {
    inventory_report r;
    r.at = b.logic.state().at;
    r.who = who;
    b.logic.received(r, b.now);
  }
  b.logic.received(plan_adopted{b.logic.state().at, alice}, b.now);
  CHECK(b.sent<start_order>().empty());
  b.logic.received(plan_adopted{b.logic.state().at, bob}, b.now);
  CHECK(b.sent<start_order>().size() == 2);
}

TEST_CASE("a lost member opens an era and is fenced; a lost bystander does not") {
  bench b;
  b.run({alice, bob});
  const auto before = b.logic.state().at;
  b.logic.lost(bob, "killed", b.now);
  CHECK(b.logic.state().at > before);
  CHECK(b.logic.is_fenced(bob));
  CHECK(b.noted(event_kind::worker_lost));

  bench c;
  c.run({alice});
  c.logic.pause(c.now);  // no join is proposed meanwhile
  c.logic.arrived(hello(carol), {}, c.now);
  const auto calm = c.logic.state().at;
  c.logic.lost(carol, "killed", c.now);
  CHECK(c.logic.state().at == calm);
}

TEST_CASE("what a fenced life says is not heard; it is told that it is fenced") {
  bench b;
  b.run({alice, bob});
  b.logic.lost(bob, "killed", b.now);
  b.out.clear();
  b.logic.received(verdict_report{bob, b.verdict_of(9, {})}, b.now);
  CHECK(b.sent<fenced_order>().size() == 1);
  CHECK_FALSE(b.logic.state().newest);
  b.out.clear();
  b.logic.arrived(hello(bob), {}, b.now);
  CHECK(b.sent<fenced_order>().size() == 1);
}

TEST_CASE("a broken link between two that live opens an era of the same members") {
  bench b;
  b.run({alice, bob});
  b.logic.received(link_complaint{alice, bob, b.logic.state().at, "reset"}, b.now);
  CHECK(b.logic.where() == stage::fencing);
  CHECK_FALSE(b.logic.is_fenced(bob));
  b.logic.received(link_complaint{bob, alice, {term_number(1), 1}, "reset"},
                   b.now);  // of the era before: no news
  CHECK(b.logic.where() == stage::fencing);
}

TEST_CASE("a newcomer is proposed as a learner and joins at a verdict") {
  bench b;
  b.run({alice});
  b.logic.arrived(hello(carol), {}, b.now);
  const auto proposed = b.sent<proposal_order>();
  REQUIRE(proposed.size() == 2);
  CHECK(b.logic.is_learner(carol));
  b.logic.received(verdict_report{alice, b.verdict_of(1, proposed[0].second.next.id)}, b.now);
  CHECK(b.logic.is_member(carol));
  CHECK(b.noted(event_kind::worker_joined));
}

TEST_CASE("a newcomer that does not get ready in time is given up") {
  bench b;
  b.run({alice});
  b.logic.arrived(hello(carol), {}, b.now);
  REQUIRE(b.logic.is_learner(carol));
  b.pass(1ms);
  b.pass(b.options().learn_timeout);
  CHECK(b.logic.is_fenced(carol));
}

TEST_CASE("one proposal at a time; the next waits until all leavers have let go") {
  bench b;
  b.run({alice, bob});
  b.logic.drain({bob}, std::nullopt, "test", b.now);
  const auto leave = b.logic.state().pending;
  REQUIRE(leave);
  CHECK(leave->leavers == std::vector<incarnation>{bob});
  b.logic.arrived(hello(carol), {}, b.now);
  CHECK(b.logic.state().pending == leave);
  b.logic.received(verdict_report{alice, b.verdict_of(1, leave->next.id)}, b.now);
  CHECK_FALSE(b.logic.state().pending);
  b.logic.received(released_report{bob, leave->next.id}, b.now);
  REQUIRE(b.logic.state().pending);
  CHECK(b.logic.state().pending->next.has_member(carol));
}

TEST_CASE("the last member cannot be drained") {
  bench b;
  b.run({alice});
  b.logic.drain({alice}, std::nullopt, "test", b.now);
  CHECK_FALSE(b.logic.state().pending);
}

TEST_CASE("another numeric class is refused with both numbers") {
  bench b;
  b.run({alice});
  b.logic.arrived(hello(carol, 8), {}, b.now);
  CHECK(b.noted(event_kind::worker_refused));
  CHECK(b.logic.connected() == std::vector<incarnation>{alice});
}

TEST_CASE("a coordinator that comes back goes on with the workers that do, in the same era") {
  bench b;
  b.run({alice, bob});
  const auto left = b.logic.state();
  bench again(left, 2);
  CHECK(again.logic.where() == stage::reconnecting);
  again.logic.arrived(hello(alice), {}, again.now);
  CHECK(again.logic.where() == stage::reconnecting);
  again.logic.arrived(hello(bob), {}, again.now);
  CHECK(again.logic.where() == stage::running);
  CHECK(again.logic.state().at == left.at);
  CHECK(again.sent<fence_order>().empty());
}

TEST_CASE("after one full lease whoever did not come back is lost") {
  bench b;
  b.run({alice, bob});
  bench again(b.logic.state(), 2);
  again.logic.arrived(hello(alice), {}, again.now);
  again.pass(again.options().lease - 1ms);
  CHECK(again.logic.where() == stage::reconnecting);
  again.pass(2ms);
  CHECK(again.logic.is_fenced(bob));
  CHECK(again.logic.state().at == era{term_number(2), 1});
}

TEST_CASE("non-finite steps in a row end the job with the reason") {
  bench b;
  b.run({alice});
  auto v = b.verdict_of(1, b.logic.state().current.id);
  v.outcome.skipped = true;
  v.outcome.skips_in_a_row = bench::job().elastic.max_skips;
  b.logic.received(verdict_report{alice, v}, b.now);
  CHECK(b.logic.where() == stage::ended);
  CHECK(b.noted(event_kind::job_failed));
}

TEST_CASE("members that end with different state fail the job") {
  bench b;
  b.run({alice, bob});
  for (const auto& [who, hash] : {std::pair{alice, 1}, std::pair{bob, 2}})
    b.logic.received(
        final_report{who, b.logic.state().timeline, step_number(100), {static_cast<std::uint64_t>(hash)}},
        b.now);
  CHECK(b.noted(event_kind::job_failed));
}

TEST_CASE("whoever does not answer a fence in time is given up") {
  bench b;
  b.run({alice, bob});
  b.logic.received(link_complaint{alice, bob, b.logic.state().at, "reset"}, b.now);
  inventory_report r;
  r.at = b.logic.state().at;
  r.who = alice;
  b.logic.received(r, b.now);
  b.pass(b.options().adopt_timeout + 1ms);
  CHECK(b.logic.is_fenced(bob));
  CHECK(b.logic.where() == stage::recovering);
}

// ---- uneven and changing clusters

namespace {

const incarnation dave{4, 4};

// Beats as if each member computed its slots at its speed, for so many steps.
void compute(bench& b, const std::map<incarnation, double>& slot_seconds, int steps) {
  static std::map<incarnation, heartbeat> beats;
  if (steps == 0) return beats.clear();
  for (int i = 0; i < steps; ++i) {
    b.now += 100ms;
    for (const auto& [who, s] : slot_seconds) {
      auto& h = beats[who];
      h.who = who;
      h.step = h.step + 1;
      h.slots_done += 4;
      h.slot_seconds += 4 * s;
      b.logic.beat(h, b.now);
    }
  }
}

std::uint32_t slots_of(const plan& p, const incarnation& who) {
  std::uint32_t n = 0;
  for (const auto& blocks : p.find(who)->blocks) n += blocks.size;
  return n;
}

job_config with_spares(std::uint32_t spares, std::uint32_t most = 0) {
  auto j = bench::job();
  j.elastic.spares = spares;
  j.elastic.max_workers = most;
  return j;
}

}  // namespace

TEST_CASE("a member at half speed gets fewer slots by a plan that moves no tile") {
  bench b;
  compute(b, {}, 0);
  b.run({alice, bob});
  compute(b, {{alice, 0.02}, {bob, 0.04}}, 12);
  const auto p = b.logic.state().pending;
  REQUIRE(p);
  CHECK(slots_of(p->next, alice) == 3);
  CHECK(slots_of(p->next, bob) == 1);
  CHECK(p->moves.empty());
  CHECK(p->next.holders == b.logic.state().current.holders);
  CHECK(b.noted(event_kind::worker_slow));
}

TEST_CASE("where the job forbids it no block follows the speeds") {
  auto j = bench::job();
  j.elastic.rebalance = false;
  bench b({}, 1, j);
  compute(b, {}, 0);
  b.run({alice, bob});
  compute(b, {{alice, 0.02}, {bob, 0.04}}, 12);
  CHECK_FALSE(b.logic.state().pending);
}

TEST_CASE("a spare is no member, and steps in when a member is lost") {
  bench b({}, 1, with_spares(1));
  b.gather({alice, bob, carol});
  CHECK(b.logic.state().current.members.size() == 2);
  const auto spare = !b.logic.is_member(alice) ? alice : !b.logic.is_member(bob) ? bob : carol;
  CHECK(b.logic.is_spare(spare));
  CHECK_FALSE(b.logic.state().pending);
  const auto victim = spare == alice ? bob : alice;
  b.logic.lost(victim, "killed", b.now);
  std::vector<incarnation> rest;
  for (const auto& who : {alice, bob, carol})
    if (who != victim) rest.push_back(who);
  b.settle(rest);
  CHECK((b.logic.is_member(spare) || b.logic.is_learner(spare)));
  // Whoever comes next is the spare.
  b.logic.arrived(hello(dave), {}, b.now);
  CHECK(b.logic.is_spare(dave));
}

TEST_CASE("workers beyond the quota are kept ready") {
  bench b({}, 1, with_spares(0, 2));
  b.gather({alice, bob, carol});
  CHECK(b.logic.state().current.members.size() == 2);
  b.logic.arrived(hello(dave), {}, b.now);
  CHECK(b.logic.is_spare(dave));
  CHECK_FALSE(b.logic.state().pending);
}

TEST_CASE("all workers of a node leave in one plan") {
  bench b;
  b.run({alice, bob, carol});
  b.logic.drain({bob, carol}, 30s, "node-2 is to go", b.now);
  REQUIRE(b.logic.state().pending);
  CHECK(b.logic.state().pending->leavers == std::vector<incarnation>{bob, carol});
  CHECK(b.noted(event_kind::worker_draining));
  CHECK(b.logic.time_left(bob, b.now + 10s) == 20s);
}

TEST_CASE("a worker of a node that is to go does not join") {
  bench b;
  b.run({alice});
  b.logic.drain({carol}, std::nullopt, "its node is to go", b.now);
  b.logic.arrived(hello(carol), {}, b.now);
  CHECK_FALSE(b.logic.state().pending);
  CHECK_FALSE(b.logic.is_spare(carol));
}

TEST_CASE("a job does not start on workers that are to go") {
  bench b;
  b.logic.drain({alice}, std::nullopt, "its node is to go", b.now);
  b.logic.arrived(hello(alice), {}, b.now);
  b.pass(2s);
  CHECK(b.logic.where() == stage::waiting);
  b.logic.arrived(hello(bob), {}, b.now);
  b.pass(2s);
  b.pass(2s);
  b.settle({alice, bob});
  CHECK(b.logic.state().current.members.size() == 1);
  CHECK(b.logic.is_member(bob));
}

TEST_CASE("whoever has not handed over by its deadline counts as lost then") {
  bench b;
  b.run({alice, bob});
  b.logic.drain({bob}, 30s, "SIGTERM", b.now);
  b.pass(30s - 1ms);
  CHECK_FALSE(b.logic.is_fenced(bob));
  b.pass(1ms);
  CHECK(b.logic.is_fenced(bob));
  CHECK(b.logic.where() == stage::fencing);
}

TEST_CASE("a deadline means nothing to whoever was released before it") {
  bench b;
  b.run({alice, bob});
  b.logic.drain({bob}, 30s, "SIGTERM", b.now);
  const auto leave = b.logic.state().pending->next.id;
  b.logic.received(verdict_report{alice, b.verdict_of(1, leave)}, b.now);
  b.logic.received(released_report{bob, leave}, b.now);
  b.pass(60s);
  CHECK_FALSE(b.logic.is_fenced(bob));
  CHECK_FALSE(b.logic.state().pending);
}

TEST_CASE("a drain that nobody could take over says so, saves the state, and goes on when somebody comes") {
  bench b;
  b.run({alice});
  b.logic.drain({alice}, 30s, "SIGTERM", b.now);
  CHECK(b.noted(event_kind::drain_blocked));
  REQUIRE(b.logic.state().pending);
  CHECK(b.logic.state().pending->next.snapshot);
  CHECK(b.logic.state().pending->leavers.empty());
  b.logic.received(verdict_report{alice, b.verdict_of(1, b.logic.state().pending->next.id)}, b.now);
  CHECK_FALSE(b.logic.state().pending);
  b.logic.arrived(hello(carol), {}, b.now);
  REQUIRE(b.logic.state().pending);
  CHECK(b.logic.state().pending->leavers == std::vector<incarnation>{alice});
  CHECK(b.logic.state().pending->moves == std::vector<tile_move>{{tile_id(0), alice, carol}});
}

TEST_CASE("with half its time over a leaver does not wait for a newcomer that copies") {
  bench b;
  b.run({alice, bob});
  b.logic.arrived(hello(carol), {}, b.now);
  const auto join = b.logic.state().pending;
  REQUIRE(join);
  b.logic.drain({bob}, 10s, "SIGTERM", b.now);
  b.pass(4s);
  CHECK(b.logic.state().pending == join);
  b.pass(1s);
  CHECK(b.logic.where() == stage::fencing);
  for (const auto& who : {alice, bob}) {
    inventory_report r;
    r.at = b.logic.state().at;
    r.who = who;
    r.timeline = b.logic.state().timeline;
    r.tiles = {{tile_id(0), step_number(0), true, false}};
    b.logic.received(r, b.now);
  }
  inventory_report none;
  none.at = b.logic.state().at;
  none.who = carol;
  b.logic.received(none, b.now);
  for (const auto& who : {alice, bob}) b.logic.received(plan_adopted{b.logic.state().at, who}, b.now);
  REQUIRE(b.logic.where() == stage::running);
  const auto leave = b.logic.state().pending;
  REQUIRE(leave);
  CHECK(leave->leavers == std::vector<incarnation>{bob});
  CHECK(leave->moves.empty());
  CHECK_FALSE(leave->next.has_member(carol));
}

TEST_CASE("drains outlive the coordinator") {
  bench b;
  b.run({alice, bob});
  b.logic.drain({bob}, 30s, "SIGTERM", b.now);
  bench again(b.logic.state(), 2);
  CHECK(again.logic.is_draining(bob));
  CHECK(again.logic.time_left(bob, again.now) == 30s);
}

TEST_CASE("members that do not find each other: one goes, not both") {
  bench b;
  b.run({alice, bob, carol});
  b.logic.received(link_complaint{alice, bob, b.logic.state().at, "reset"}, b.now);
  for (const auto& who : {alice, bob, carol}) {
    inventory_report r;
    r.at = b.logic.state().at;
    r.who = who;
    r.timeline = b.logic.state().timeline;
    r.tiles = {{tile_id(0), step_number(0), true, false}};
    b.logic.received(r, b.now);
  }
  REQUIRE(b.logic.where() == stage::recovering);
  b.logic.received(plan_adopted{b.logic.state().at, carol}, b.now);
  b.logic.received(link_complaint{alice, bob, b.logic.state().at, "no link yet"}, b.now);
  b.logic.received(link_complaint{bob, alice, b.logic.state().at, "no link yet"}, b.now);
  REQUIRE(b.logic.where() == stage::recovering);  // they are given time to find each other
  b.pass(b.options().link_patience);
  CHECK(b.logic.where() == stage::fencing);
  CHECK(b.logic.is_fenced(alice) != b.logic.is_fenced(bob));
  CHECK_FALSE(b.logic.is_fenced(carol));
  CHECK(b.noted(event_kind::workers_apart));
}

TEST_CASE("a link that breaks again and again costs one of its ends") {
  bench b;
  b.run({alice, bob, carol});
  for (int i = 0; i < 5; ++i) {
    b.logic.received(link_complaint{alice, bob, b.logic.state().at, "reset"}, b.now);
    if (i < 4) b.settle({alice, bob, carol});
  }
  CHECK(b.logic.is_fenced(alice) != b.logic.is_fenced(bob));
}

TEST_CASE("a stall in which all wait is answered by a new era, a second one by the end of the last") {
  bench b;
  b.run({alice, bob});
  b.logic.stalled(bob, "test", b.now);
  CHECK(b.logic.where() == stage::fencing);
  CHECK_FALSE(b.logic.is_fenced(bob));
  b.settle({alice, bob});
  b.logic.stalled(bob, "test", b.now);
  CHECK(b.logic.is_fenced(bob));
}

TEST_CASE("what only a leaver holds is copied first") {
  durable_state known;
  known.at = {term_number(1), 1};
  known.timeline = timeline_number(1);
  known.started = true;
  known.numeric_class = 7;
  known.current.id = {known.at, 0};
  known.current.members = {{alice, {{0, 2}}}, {bob, {{2, 1}}}, {carol, {{3, 1}}}};
  known.current.holders = {{1, 0}, {1}};  // tile 0: bob and alice, tile 1: bob alone
  known.draining = {{bob, 10'000, false, "SIGTERM"}};
  known.recovery = recover_order{};
  known.recovery->at = known.at;
  known.recovery->next = known.current;
  effects out;
  auto options = bench::options();
  options.tiles = 2;
  options.replicas = 2;
  supervisor logic(term_number(2), bench::job(), options, known, {}, out, {});
  for (const auto& who : {alice, bob, carol}) logic.arrived(hello(who), {}, {});
  const auto leave = logic.state().pending;
  REQUIRE(leave);
  REQUIRE(leave->moves.size() == 3);
  CHECK(leave->moves[0].tile == tile_id(1));
  CHECK(leave->moves[1].tile == tile_id(1));
  CHECK(leave->moves[2].tile == tile_id(0));
}

TEST_CASE("a newcomer that cannot reach a member goes, and its node's workers wait before they come back") {
  bench b;
  auto on = [](const incarnation& who, std::uint64_t node) {
    auto h = hello(who);
    h.node = {node, node};
    return h;
  };
  b.logic.arrived(on(alice, 1), {}, b.now);
  b.logic.arrived(on(bob, 2), {}, b.now);
  b.pass(1s);
  b.settle({alice, bob});
  b.logic.arrived(on(carol, 3), {}, b.now);
  REQUIRE(b.logic.is_learner(carol));
  const auto missing = link_complaint{carol, bob, b.logic.state().at, "there is no link yet"};
  b.logic.received(missing, b.now);
  b.pass(b.options().link_patience - 1ms);
  b.logic.received(plan_adopted{b.logic.state().at, carol}, b.now);  // it has found all
  b.pass(b.options().link_patience);
  CHECK(b.logic.is_learner(carol));
  b.logic.received(missing, b.now);
  b.pass(b.options().link_patience);
  CHECK(b.logic.is_fenced(carol));
  CHECK_FALSE(b.logic.is_fenced(bob));
  b.settle({alice, bob});
  b.logic.arrived(on(dave, 3), {}, b.now);
  CHECK_FALSE(b.logic.is_learner(dave));
  b.pass(b.options().probation);
  CHECK(b.logic.is_learner(dave));
}
