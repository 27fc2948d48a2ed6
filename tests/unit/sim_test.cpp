// The simulator's own proof: the same scenario is the same run, each rule that is broken on purpose is
// noticed, and schedules that were found so stay dangerous for the rule and harmless without.
#include <doctest/doctest.h>

#include "chaos/sim/shrink.hpp"
#include "chaos/sim/world.hpp"

using namespace perdura;

namespace {

struct finding {
  rule broken;
  std::uint64_t within;  // seeds, from 1 on, of which one finds it
};

// `perdura-sim --break RULE` says the first; the bound leaves room for changes that move the seeds.
constexpr finding findings[] = {
#include "tests/unit/sim_findings.inc"
};

struct dangerous {
  rule broken;
  std::uint64_t delays;  // seeds of the delays, from 0 on, of which one finds it
  const char* schedule;
};

// Made short by `perdura-sim --break RULE`.
constexpr dangerous schedules[] = {
#include "tests/unit/sim_schedules.inc"
};

std::optional<std::string> first_violation(sim::scenario s, std::uint64_t delays, broken_rules broken) {
  for (s.seed = 0; s.seed < delays; ++s.seed)
    if (auto r = sim::run_scenario(s, broken); r.violated) return r.violated;
  return std::nullopt;
}

}  // namespace

TEST_CASE("the same seed is the same run") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto once = sim::run_seed({.seed = seed, .broken = {}, .trace = false});
    const auto again = sim::run_seed({.seed = seed, .broken = {}, .trace = false});
    CHECK(once.events == again.events);
    CHECK(once.worker_steps == again.worker_steps);
    CHECK_FALSE(once.violated);
  }
}

TEST_CASE("a schedule is read as it was written") {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto s = sim::draw_scenario(seed);
    const auto read = sim::parse_scenario(to_string(s));
    REQUIRE(read);
    CHECK(*read == s);
  }
  for (const auto* wrong : {"seed", "seed x", "tiles 0", "slots 3", "12 explode 1", "12", "12 kill 1 2 3 4"})
    CHECK_FALSE(sim::parse_scenario(wrong));
}

TEST_CASE("a fault that does nothing does not shift what happens elsewhere") {
  auto s = sim::draw_scenario(3);
  const auto before = sim::run_scenario(s);
  s.faults.push_back({s.calm_after(), sim::fault_kind::break_link, 1, 1, 0});  // of a worker with itself
  const auto after = sim::run_scenario(s);
  CHECK(before.worker_steps == after.worker_steps);
  CHECK(before.recoveries == after.recoveries);
}

TEST_CASE("each rule that is broken on purpose is found") {
  std::vector<bool> covered(rule_count, false);
  for (const auto& f : findings) {
    CAPTURE(std::string(to_string(f.broken)));
    bool found = false;
    for (auto seed = f.within; seed > 0 && !found; --seed)
      found = sim::run_seed({.seed = seed, .broken = broken_rules(f.broken), .trace = false})
                  .violated.has_value();
    CHECK(found);
    covered[static_cast<unsigned>(f.broken)] = true;
  }
  for (const auto& s : schedules) covered[static_cast<unsigned>(s.broken)] = true;
  for (unsigned r = 0; r < rule_count; ++r) {
    CAPTURE(std::string(to_string(static_cast<rule>(r))));
    // Not in 10,000 seeds; step_protocol_test has the rules themselves (docs/protocol.md says why).
    const auto is = static_cast<rule>(r);
    if (is == rule::own_life || is == rule::newest_term || is == rule::await_leavers) continue;
    CHECK(covered[r]);
  }
}

TEST_CASE("each schedule that was found is dangerous for its rule and harmless without") {
  for (const auto& d : schedules) {
    CAPTURE(std::string(to_string(d.broken)));
    CAPTURE(std::string(d.schedule));
    const auto s = sim::parse_scenario(d.schedule);
    REQUIRE(s);
    CHECK(first_violation(*s, d.delays, broken_rules(d.broken)));
    CHECK_FALSE(first_violation(*s, d.delays, {}));
  }
}

TEST_CASE("a schedule is made short and still breaks the rule in the same way") {
  const broken_rules broken(rule::vote_needs_gradient);
  std::uint64_t seed = 1;
  auto r = sim::run_seed({.seed = seed, .broken = broken, .trace = false});
  while (!r.violated) r = sim::run_seed({.seed = ++seed, .broken = broken, .trace = false});
  const auto s = sim::draw_scenario(seed);
  const auto found = sim::shrink(s, *r.violated, broken);
  CHECK(found.shortest.faults.size() <= s.faults.size());
  const auto again = sim::run_scenario(found.shortest, broken).violated;
  REQUIRE(again);
  CHECK(sim::kind_of(*again) == sim::kind_of(*r.violated));
}
