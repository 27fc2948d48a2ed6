// Speeds and advice, on a model of a job: a step lasts as long as its slowest member's slots.
#include "coordinator/logic/straggler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "coordinator/logic/planner.hpp"

using namespace perdura;
using namespace perdura::coordinator;
using namespace std::chrono_literals;

namespace {

incarnation life(std::uint64_t n) { return {n, n}; }

std::uint32_t slots_of(const plan_member& m) {
  std::uint32_t n = 0;
  for (const auto& b : m.blocks) n += b.size;
  return n;
}

struct worker {
  incarnation who;
  double slot_s;  // as planned; `noise` of the model goes on top
  std::uint64_t slots_done = 0;
  double slot_seconds = 0;
};

// Steps of members that wait for the slowest; heartbeats every 100 ms of which each tells the slots done so
// far; advice is followed two steps later, as a proposal is.
struct model {
  model(std::uint32_t slots, std::vector<double> slot_s, straggler_options options = {})
      : slots(slots), watch(options) {
    std::vector<candidate> all;
    for (std::size_t i = 0; i < slot_s.size(); ++i) {
      workers.push_back({life(i + 1), slot_s[i]});
      all.push_back({.who = life(i + 1)});
    }
    members = plan_blocks(slots, all);
  }

  worker& at(const incarnation& who) { return workers[who.low - 1]; }

  double step_seconds(const std::vector<plan_member>& plan) {
    double longest = 0;
    for (const auto& m : plan) longest = std::max(longest, slots_of(m) * at(m.who).slot_s);
    return longest;
  }

  double best_seconds() {
    std::vector<candidate> able;
    for (const auto& m : members) able.push_back({.who = m.who, .slots_per_second = 1 / at(m.who).slot_s});
    return step_seconds(plan_blocks(slots, able));
  }

  void step() {
    std::vector<std::vector<double>> spent;
    double longest = 0;
    for (const auto& m : members) {
      auto& mine = spent.emplace_back();
      double sum = 0;
      for (std::uint32_t i = 0; i < slots_of(m); ++i) {
        mine.push_back(at(m.who).slot_s * (noise ? noise(m.who) : 1));
        sum += mine.back();
      }
      longest = std::max(longest, sum);
    }
    const double begin = now_s;
    const double end = begin + longest;
    while (next_beat_s <= end) {
      for (std::size_t i = 0; i < members.size(); ++i) beat(members[i].who, spent[i], next_beat_s - begin);
      next_beat_s += 0.1;
    }
    for (std::size_t i = 0; i < members.size(); ++i)
      for (const auto s : spent[i]) {
        ++at(members[i].who).slots_done;
        at(members[i].who).slot_seconds += s;
      }
    now_s = end;
    ++number;
    if (next && number >= next_at) {
      members = *next;
      next.reset();
    }
  }

  void beat(const incarnation& who, const std::vector<double>& spent, double since) {
    auto& w = at(who);
    heartbeat h;
    h.who = who;
    h.step = step_number(number);
    h.slots_done = w.slots_done;
    h.slot_seconds = w.slot_seconds;
    for (const auto s : spent) {
      if ((since -= s) < 0) break;
      ++h.slots_done;
      h.slot_seconds += s;
    }
    const watchdog_time now{
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(next_beat_s))};
    if (!watch.heard(h, now) || !watch.is_due(now) || next) return;
    const auto found = watch.consider({slots, 0, members, spares, 1}, now);
    if (!found) return;
    CHECK_FALSE(found->why.empty());
    ++changes;
    last = found;
    next_at = number + 2;
    auto going = members;
    std::vector<candidate> able;
    for (const auto& m : members)
      if (found->what == remedy::move_blocks || m.who != found->who)
        able.push_back({.who = m.who, .slots_per_second = watch.paces().speed_or_usual(m.who)});
    if (found->what == remedy::replace) {
      able.push_back({.who = spares.front(), .slots_per_second = watch.paces().usual()});
      spares.erase(spares.begin());
    }
    next = plan_blocks(slots, able, 0, members);
  }
  using watchdog_time = straggler_watch::time_point;

  const std::uint32_t slots;
  std::vector<worker> workers;
  std::function<double(const incarnation&)> noise;
  straggler_watch watch;
  std::vector<plan_member> members;
  std::vector<incarnation> spares;
  std::optional<std::vector<plan_member>> next;
  std::uint64_t next_at = 0;
  std::uint64_t number = 1;
  double now_s = 0;
  double next_beat_s = 0.05;
  unsigned changes = 0;
  std::optional<advice> last;
};

void run_seconds(model& m, double seconds) {
  for (const double end = m.now_s + seconds; m.now_s < end;) m.step();
}

// Multiplies each slot's time; spread is one standard deviation of its logarithm.
std::function<double(const incarnation&)> scatter(std::uint64_t seed, double spread) {
  return [rng = std::mt19937_64(seed), spread](const incarnation&) mutable {
    return std::exp(std::normal_distribution<double>(0, spread)(rng));
  };
}

}  // namespace

TEST_CASE("a worker at half speed is relieved within ten steps, to within 5% of the best whole slots allow") {
  for (const double step_s : {0.3, 0.03})
    for (const std::uint32_t slots : {16U, 64U})
      for (const std::size_t workers : {2U, 3U, 4U, 8U})
        for (int phase = 0; phase < 7; ++phase) {
          const double share = std::ceil(static_cast<double>(slots) / static_cast<double>(workers));
          model m(slots, std::vector<double>(workers, step_s / share));
          m.noise = scatter(slots * 100 + workers * 10 + static_cast<unsigned>(phase), 0.02);
          run_seconds(m, 20 + 0.037 * phase);
          CAPTURE(step_s);
          CAPTURE(slots);
          CAPTURE(workers);
          REQUIRE(m.changes == 0);
          m.workers.front().slot_s *= 2;
          for (int step = 0; step < 10; ++step) m.step();
          CHECK(m.best_seconds() >= 0.95 * m.step_seconds(m.members));
          run_seconds(m, 4);
          CHECK(m.changes <= 2);
        }
}

TEST_CASE("uneven workers share by their speed soon after the start") {
  model m(64, {0.01, 0.02, 0.005, 0.01});
  run_seconds(m, 5);
  CHECK(m.best_seconds() >= 0.95 * m.step_seconds(m.members));
  CHECK(m.changes <= 2);
}

TEST_CASE("noise alone hardly ever moves a block") {
  unsigned most = 0, all = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const double spread : {0.05, 0.1, 0.3}) {
      model m(64, std::vector<double>(8, 0.0125));
      m.noise = scatter(seed, spread);
      run_seconds(m, 300);
      most = std::max(most, m.changes);
      all += m.changes;
    }
  CAPTURE(all);
  CHECK(most <= 4);
  CHECK(all <= 20);
}

TEST_CASE("a step's noise that all slots of a worker share does not make plans flap") {
  unsigned most = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    model m(64, std::vector<double>(8, 0.0125));
    auto each = scatter(seed, 0.15);
    std::map<incarnation, std::pair<std::uint64_t, double>> drawn;
    m.noise = [&](const incarnation& who) {
      auto& [step, factor] = drawn[who];
      if (step != m.number) drawn[who] = {m.number, each(who)};
      return drawn[who].second;
    };
    run_seconds(m, 600);
    most = std::max(most, m.changes);
  }
  CHECK(most <= 8);
}

TEST_CASE("a single long stop is no trend") {
  model m(16, std::vector<double>(4, 0.075));
  run_seconds(m, 10);
  bool once = true;
  m.noise = [&](const incarnation& who) { return who == life(1) && std::exchange(once, false) ? 20.0 : 1.0; };
  run_seconds(m, 30);
  CHECK(m.changes == 0);
}

TEST_CASE("stops in bursts of half the time count as half the speed") {
  // Slots of 10 ms, stopped for 100 of every 200 ms: every tenth slot or so takes 110.
  model m(64, std::vector<double>(4, 0.01));
  run_seconds(m, 10);
  REQUIRE(m.changes == 0);
  double ran = 0;
  m.noise = [&](const incarnation& who) {
    if (who != life(1)) return 1.0;
    if ((ran += 0.01) < 0.1) return 1.0;
    ran = 0;
    return 11.0;
  };
  run_seconds(m, 30);
  CHECK(m.changes >= 1);
  CHECK(m.changes <= 5);
  CHECK(slots_of(m.members.front()) <= 11);
}

TEST_CASE("a worker that is slow now and then costs a bounded number of plans") {
  model m(16, std::vector<double>(4, 0.075));
  for (int i = 0; i < 120; ++i) {
    m.workers.front().slot_s = i % 2 == 0 ? 0.15 : 0.075;
    run_seconds(m, 5);
  }
  CHECK(m.changes >= 4);
  CHECK(m.changes <= 4 + 600 / 30 + 1);
}

TEST_CASE("a worker that recovers gets its slots back") {
  model m(16, std::vector<double>(4, 0.075));
  run_seconds(m, 10);
  m.workers.front().slot_s *= 2;
  run_seconds(m, 20);
  CHECK(slots_of(m.members.front()) == 2);
  m.workers.front().slot_s /= 2;
  run_seconds(m, 20);
  CHECK(m.best_seconds() >= 0.95 * m.step_seconds(m.members));
}

TEST_CASE("one that had no slots for long is tried again") {
  model m(8, {0.02, 0.02, 0.5}, {.may_let_go = false});
  run_seconds(m, 10);
  REQUIRE(slots_of(m.members.back()) == 0);
  m.workers.back().slot_s = 0.02;
  run_seconds(m, 400);
  CHECK(slots_of(m.members.back()) >= 2);
}

TEST_CASE("a slow worker loses blocks first, and its place to a spare when it stays slow") {
  model m(16, std::vector<double>(4, 0.075));
  m.workers.push_back({life(5), 0.075});
  m.spares = {life(5)};
  run_seconds(m, 10);
  m.workers.front().slot_s *= 3;
  run_seconds(m, 3);
  REQUIRE(m.last);
  CHECK(m.last->what == remedy::move_blocks);
  run_seconds(m, 20);
  CHECK(m.last->what == remedy::replace);
  CHECK(m.last->who == life(1));
  CHECK(m.best_seconds() == m.step_seconds(m.members));
}

TEST_CASE("a worker too slow for a single slot is let go, but not below the least number of members") {
  model m(8, {0.02, 0.02, 0.02, 2});
  run_seconds(m, 40);
  REQUIRE(m.last);
  CHECK(m.last->what == remedy::let_go);
  CHECK(m.last->who == life(4));
  CHECK(m.members.size() == 3);

  straggler_watch watch(straggler_options{});
  const straggler_watch::time_point start{};
  for (int i = 0; i < 200; ++i)
    for (const auto n : {1, 2}) {
      heartbeat h;
      h.who = life(static_cast<std::uint64_t>(n));
      h.step = step_number(static_cast<std::uint64_t>(i));
      h.slots_done = static_cast<std::uint64_t>(4 * i);
      h.slot_seconds = n == 1 ? 0.04 * i : 40.0 * i;
      watch.heard(h, start + i * 100ms);
    }
  const std::vector<plan_member> members{{life(1), {{0, 8}}}, {life(2), {}}};
  CHECK_FALSE(watch.consider({8, 0, members, {}, 2}, start + 20s));
  CHECK_FALSE(watch.consider({8, 0, members, {}, 2}, start + 30s));
  const auto let_go = watch.consider({8, 0, members, {}, 1}, start + 31s);
  REQUIRE(let_go);
  CHECK(let_go->what == remedy::let_go);
}

TEST_CASE("a worker that waits is not slow") {
  pace_book paces;
  const pace_book::time_point start{};
  heartbeat h;
  h.who = life(1);
  for (int i = 0; i < 10; ++i) {
    h.step = step_number(static_cast<std::uint64_t>(i));
    h.slots_done += 4;
    h.slot_seconds += 0.4;
    paces.heard(h, start + i * 100ms);
  }
  const auto before = paces.slots_per_second(life(1));
  REQUIRE(before);
  CHECK(*before == doctest::Approx(10));
  h.phase = worker_phase::gather;
  for (int i = 10; i < 100; ++i) paces.heard(h, start + i * 100ms);
  CHECK(paces.slots_per_second(life(1)) == before);
}
