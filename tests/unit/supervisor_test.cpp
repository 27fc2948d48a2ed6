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
  explicit bench(durable_state known = {}, std::uint32_t term = 1)
      : logic(term_number(term), job(), options(), known, {}, out, now) {}
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
        if (const auto* o = std::get_if<Order>(&s->order)) found.emplace_back(s->to, *o);
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
    for (const auto& who : all) logic.arrived(hello(who), {}, now);
    pass(1s);
    settle(all);
    REQUIRE(logic.where() == stage::running);
    out.clear();
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
    return p && p->state.at == b.logic.state().at;
  });
  const auto fenced = std::find_if(b.out.begin(), b.out.end(), [](const auto& e) {
    const auto* s = std::get_if<ce::send>(&e);
    return s && std::holds_alternative<fence_order>(s->order);
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
