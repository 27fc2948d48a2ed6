// A few seconds of what tests/fuzz/run does for hours: the same inputs at every run.
#include <doctest/doctest.h>

#include <string>

#include "tests/fuzz/mutator.hpp"
#include "tests/fuzz/targets.hpp"

using namespace perdura::fuzz;

namespace {

constexpr int rounds = 20000;

// Some must get through: else what lies behind the first check is never reached.
void run(const target& t) {
  const auto seeds = t.seeds();
  int read = 0;
  for (const auto& seed : seeds) CHECK(t.run(seed));
  mutator mutate(20260101);
  for (int i = 0; i < rounds; ++i) read += t.run(mutate.next(seeds)) ? 1 : 0;
  CHECK(read > rounds / 200);
  CHECK(read < rounds);
}

}  // namespace

TEST_CASE("manifests that were changed at random are read or refused") { run(targets()[0]); }
TEST_CASE("packs that were changed at random are read or refused") { run(targets()[1]); }
TEST_CASE("safetensors files that were changed at random are read or refused") { run(targets()[2]); }
