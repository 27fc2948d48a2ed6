#include "worker/logic/outcome.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace perdura;
using namespace perdura::worker;

namespace {

job_config job() {
  job_config j;
  j.steps = 100;
  j.optimizer.learning_rate = 1;
  j.optimizer.warmup_steps = 10;
  j.optimizer.decay_fraction = 0.4;
  j.optimizer.clip_norm = 5;
  return j;
}

}  // namespace

TEST_CASE("the learning rate warms up, holds and decays to almost nothing") {
  const auto j = job();
  CHECK(learning_rate(j.optimizer, j.steps, 1) == doctest::Approx(0.1));
  CHECK(learning_rate(j.optimizer, j.steps, 10) == 1.0F);
  CHECK(learning_rate(j.optimizer, j.steps, 60) == 1.0F);
  CHECK(learning_rate(j.optimizer, j.steps, 81) == doctest::Approx(0.5));
  CHECK(learning_rate(j.optimizer, j.steps, 100) == doctest::Approx(0.025));
  CHECK(learning_rate(j.optimizer, j.steps, 101) == 0.0F);
}

TEST_CASE("the norm is the root of the tiles' sums, and clipping scales it to the limit") {
  const vote_part parts[] = {{tile_id(0), 36, true, 2.5}, {tile_id(1), 64, true, 0}};
  const auto out = conclude(job(), parts, {});
  CHECK(out.gradient_norm == 10.0);
  CHECK(out.clip_scale == 0.5F);
  CHECK(out.loss == 2.5);
  CHECK(out.optimizer_time == 1);
  CHECK_FALSE(out.skipped);
}

TEST_CASE("a gradient that is not finite is skipped: data advances, the optimizer's time does not") {
  step_outcome last;
  last.optimizer_time = 7;
  last.skips_in_a_row = 1;
  const vote_part broken[] = {{tile_id(0), 1, true, 1},
                              {tile_id(1), std::numeric_limits<double>::quiet_NaN(), false, 0}};
  const auto out = conclude(job(), broken, last);
  CHECK(out.skipped);
  CHECK(out.optimizer_time == 7);
  CHECK(out.skips_in_a_row == 2);

  const vote_part well[] = {{tile_id(0), 1, true, 1}, {tile_id(1), 1, true, 0}};
  const auto next = conclude(job(), well, out);
  CHECK_FALSE(next.skipped);
  CHECK(next.optimizer_time == 8);
  CHECK(next.skips_in_a_row == 0);
}
