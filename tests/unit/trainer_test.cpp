#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "tests/unit/trainer_fixture.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/state.hpp"

using namespace perdura;
using namespace perdura::worker;

namespace {

// Trains with one trainer a worker, each computing its blocks; every tile is reduced by another worker in
// turn.
std::uint64_t train(const std::vector<std::vector<block>>& workers, std::uint64_t steps,
                    double* last_loss = nullptr) {
  std::vector<std::unique_ptr<trainer>> trainers;
  for (std::size_t i = 0; i < workers.size(); ++i) trainers.push_back(make_tiny());
  for (step_number n(1); n.value <= steps; n = n + 1) {
    std::vector<block_gradient> blocks;
    for (std::size_t i = 0; i < workers.size(); ++i)
      for (const auto& b : workers[i]) blocks.push_back(compute(*trainers[i], n, b));
    std::ranges::sort(blocks, {}, [](const block_gradient& b) { return b.slots.first; });
    const auto reduced = reduce_all(*trainers[n.value % workers.size()], blocks);
    for (auto& t : trainers)
      for (std::uint32_t i = 0; i < t->tiles().size(); ++i)
        t->apply(tile_id(i), reduced[i].gradient, outcome_of(n));
    if (last_loss) *last_loss = reduced[0].loss;
  }
  for (const auto& t : trainers) CHECK(state_hash(*t) == state_hash(*trainers[0]));
  return state_hash(*trainers[0]);
}

}  // namespace

TEST_CASE("the state after some steps has the same bits for any split of the slots among workers") {
  const auto alone = train({{{0, 8}}}, 3);
  CHECK(train({{{0, 4}}, {{4, 4}}}, 3) == alone);
  CHECK(train({{{0, 4}, {4, 2}}, {{6, 2}}}, 3) == alone);
  CHECK(train({{{0, 1}, {2, 2}}, {{1, 1}, {4, 4}}}, 3) == alone);
  CHECK(train({{{0, 2}, {2, 1}}, {{3, 1}, {6, 2}}, {{4, 2}}}, 3) == alone);
  CHECK(train({{{0, 1}, {1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}}, 3) == alone);
  CHECK(train({{{0, 8}}}, 2) != alone);
}

TEST_CASE("training lowers the loss") {
  double first = 0;
  double last = 0;
  train({{{0, 8}}}, 1, &first);
  train({{{0, 8}}}, 40, &last);
  CHECK(first > 0.0);
  CHECK(last < 0.8 * first);
}

TEST_CASE("a block is a function of step, slots and parameters alone") {
  auto t = make_tiny();
  const auto a = compute(*t, step_number(3), {2, 2});
  const auto other_slots = compute(*t, step_number(3), {4, 2});
  const auto other_step = compute(*t, step_number(4), {2, 2});
  const auto again = compute(*t, step_number(3), {2, 2});
  CHECK(a.tiles == again.tiles);
  CHECK(a.loss == again.loss);
  CHECK_FALSE(a.tiles == other_slots.tiles);
  CHECK_FALSE(a.tiles == other_step.tiles);
}

TEST_CASE("a block that is stopped gives nothing") {
  struct stopped : block_surroundings {
    bool stop() override { return true; }
    void slot_done(std::chrono::nanoseconds) override { ++slots; }
    int slots = 0;
  } around;
  auto t = make_tiny();
  CHECK_FALSE(t->compute_block(step_number(1), {0, 4}, around).has_value());
  CHECK(around.slots == 0);
}

TEST_CASE("the reduced gradient is the mean over the batch") {
  auto job = tiny_job();
  job.batch.size = 24;
  job.batch.slots = 4;
  auto t = make_tiny(job);
  std::vector<block_gradient> blocks;
  for (std::uint32_t s = 0; s < 4; ++s) blocks.push_back(compute(*t, step_number(1), {s, 1}));
  const auto reduced = reduce_all(*t, blocks);
  double squares = 0;
  double loss = 0;
  for (const auto& b : blocks) loss += b.loss;
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i) {
    const auto& region = t->tiles()[i];
    const auto* got = reinterpret_cast<const float*>(reduced[i].gradient.data());
    double tile_squares = 0;
    for (std::uint32_t k = 0; k < region.size; ++k) {
      double want = 0;
      for (const auto& b : blocks) want += reinterpret_cast<const float*>(b.tiles[i].data())[k];
      REQUIRE(std::fabs(got[k] - want / 24.0) < 1e-5);
      tile_squares += static_cast<double>(got[k]) * got[k];
    }
    CHECK(reduced[i].norm2 == doctest::Approx(tile_squares));
    CHECK(reduced[i].finite);
    squares += tile_squares;
  }
  CHECK(squares > 0.0);
  CHECK(reduced[0].loss == doctest::Approx(loss / 24.0));
}

TEST_CASE("the order in which partials are made does not matter, their bits at odd addresses neither") {
  auto t = make_tiny();
  const auto left = compute(*t, step_number(1), {0, 4});
  const auto right = compute(*t, step_number(1), {4, 4});
  const std::vector<tile_partial> aligned{{left.slots, left.loss, left.tiles[0]},
                                          {right.slots, right.loss, right.tiles[0]}};
  const auto shifted = [&](const blob& bytes) {
    std::vector<std::byte> copy(bytes.size() + 1);
    std::memcpy(copy.data() + 1, bytes.data(), bytes.size());
    const auto owner = std::make_shared<std::vector<std::byte>>(std::move(copy));
    return blob(owner, owner->data() + 1, bytes.size());
  };
  auto odd = aligned;
  for (auto& p : odd) p.gradient = shifted(p.gradient);
  const auto a = t->reduce(tile_id(0), aligned);
  const auto b = t->reduce(tile_id(0), odd);
  CHECK(a.gradient == b.gradient);
  CHECK(a.norm2 == b.norm2);
  CHECK(a.loss == b.loss);
}

TEST_CASE("a gradient that is not finite is reported for its tile alone") {
  auto t = make_tiny();
  const auto all = compute(*t, step_number(1), {0, 8});
  const auto poisoned = [&](tile_id id, bool poison) {
    const auto part = all.tiles[id.value];
    std::vector<std::byte> bytes(part.bytes().begin(), part.bytes().end());
    const float bad = std::numeric_limits<float>::infinity();
    if (poison) std::memcpy(bytes.data() + 8, &bad, sizeof bad);
    const std::vector<tile_partial> partials{{{0, 8}, 1.0, blob::take(std::move(bytes))}};
    return t->reduce(id, partials);
  };
  CHECK(poisoned(tile_id(0), false).finite);
  CHECK_FALSE(poisoned(tile_id(0), true).finite);
}

TEST_CASE("a loss that is not finite makes the step's first tile not finite") {
  auto t = make_tiny();
  const auto all = compute(*t, step_number(1), {0, 8});
  const std::vector<tile_partial> partials{{{0, 8}, std::numeric_limits<double>::quiet_NaN(), all.tiles[0]}};
  CHECK_FALSE(t->reduce(tile_id(0), partials).finite);
}

TEST_CASE("a skipped step leaves the state as it is") {
  auto t = make_tiny();
  const auto before = state_hash(*t);
  const auto all = compute(*t, step_number(1), {0, 8});
  step_outcome outcome = outcome_of(step_number(1));
  outcome.skipped = true;
  outcome.optimizer_time = 0;
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i) t->apply(tile_id(i), all.tiles[i], outcome);
  CHECK(state_hash(*t) == before);
  outcome.skipped = false;
  outcome.optimizer_time = 1;
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i) t->apply(tile_id(i), all.tiles[i], outcome);
  CHECK(state_hash(*t) != before);
}

TEST_CASE("a trainer that installs another's tiles goes on with the same bits") {
  auto a = make_tiny();
  const auto step_on = [](trainer& t, step_number n) {
    const auto reduced = reduce_all(t, {compute(t, n, {0, 8})});
    for (std::uint32_t i = 0; i < t.tiles().size(); ++i)
      t.apply(tile_id(i), reduced[i].gradient, outcome_of(n));
  };
  step_on(*a, step_number(1));
  auto b = make_tiny();
  CHECK(state_hash(*b) != state_hash(*a));
  for (std::uint32_t i = 0; i < a->tiles().size(); ++i) {
    const auto copy = a->copy_tile(tile_id(i));
    CHECK(kernels::hash64(copy.bytes()) == a->hash_tile(tile_id(i)));
    b->install_tile(tile_id(i), copy.bytes());
  }
  CHECK(state_hash(*b) == state_hash(*a));
  step_on(*a, step_number(2));
  step_on(*b, step_number(2));
  CHECK(state_hash(*b) == state_hash(*a));
}

TEST_CASE("a member without optimizer state computes the same gradients from the parameters alone") {
  auto a = make_tiny();
  auto b = make_tiny();
  const auto reduced = reduce_all(*a, {compute(*a, step_number(1), {0, 8})});
  for (std::uint32_t i = 0; i < a->tiles().size(); ++i) {
    a->apply(tile_id(i), reduced[i].gradient, outcome_of(step_number(1)));
    b->install_parameters(tile_id(i), a->copy_parameters(tile_id(i)).bytes());
  }
  CHECK(compute(*a, step_number(2), {0, 2}).tiles == compute(*b, step_number(2), {0, 2}).tiles);
  CHECK(state_hash(*a) != state_hash(*b));
}

TEST_CASE("a copy that is made later is of the state at the time it was asked for, whatever comes first") {
  auto t = make_tiny();
  for (std::uint64_t step = 1; step <= 6; ++step) {
    const auto reduced = reduce_all(*t, {compute(*t, step_number(step), {0, 8})});
    std::vector<blob> now;
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::uint32_t, blob> later;
    for (std::uint32_t i = 0; i < t->tiles().size(); ++i) {
      now.push_back(t->copy_tile(tile_id(i)));
      t->copy_tile_later(tile_id(i), [&, i](blob state) {
        const std::lock_guard lock(mutex);
        later.emplace(i, std::move(state));
        changed.notify_one();
      });
    }
    if (step == 5) t->initialise();
    for (std::uint32_t i = 0; i < t->tiles().size() && step < 5; ++i) {
      if (step % 2 == 0)
        t->install_tile(tile_id(i), now[(i + 1) % now.size()].size() == now[i].size()
                                        ? now[(i + 1) % now.size()].bytes()
                                        : now[i].bytes());
      t->apply(tile_id(i), reduced[i].gradient, outcome_of(step_number(step)));
    }
    if (step == 6)
      for (std::uint32_t i = 0; i < t->tiles().size(); ++i) t->let_go(tile_id(i));
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return later.size() == now.size(); });
    for (std::uint32_t i = 0; i < now.size(); ++i) CHECK(later.at(i) == now[i]);
  }
}

TEST_CASE("a trainer that goes drops copies that were asked for") {
  for (int i = 0; i < 20; ++i) {
    auto t = make_tiny();
    for (std::uint32_t n = 0; n < t->tiles().size(); ++n) t->copy_tile_later(tile_id(n), [](blob) {});
  }
}

TEST_CASE("the seed decides the initial state") {
  auto job = tiny_job();
  const auto one = state_hash(*make_tiny(job));
  CHECK(state_hash(*make_tiny(job)) == one);
  job.seed = 2;
  CHECK(state_hash(*make_tiny(job)) != one);
}

TEST_CASE("initialising anew forgets what was trained, and the average starts at the parameters") {
  auto t = make_tiny();
  const auto fresh = state_hash(*t);
  const auto first = t->copy_tile(tile_id(0));
  const std::size_t array_bytes = t->tiles()[0].size * sizeof(float);
  CHECK(std::memcmp(first.data(), first.data() + 3 * array_bytes, array_bytes) == 0);
  const auto reduced = reduce_all(*t, {compute(*t, step_number(1), {0, 8})});
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i)
    t->apply(tile_id(i), reduced[i].gradient, outcome_of(step_number(1)));
  CHECK(state_hash(*t) != fresh);
  t->initialise();
  CHECK(state_hash(*t) == fresh);
}

TEST_CASE(
    "the numeric class is the same for equal jobs, differs with the slot's shape, and leaves the state "
    "alone") {
  auto t = make_tiny();
  const auto state = state_hash(*t);
  const auto gradient = compute(*t, step_number(1), {0, 1}).tiles;
  const auto numbers = t->numeric_class();
  CHECK(numbers != 0);
  CHECK(t->numeric_class() == numbers);
  CHECK(make_tiny()->numeric_class() == numbers);
  CHECK(state_hash(*t) == state);
  CHECK(compute(*t, step_number(1), {0, 1}).tiles == gradient);
  auto job = tiny_job();
  job.batch.slots = 4;
  CHECK(make_tiny(job)->numeric_class() != numbers);
}

TEST_CASE("tiles cover all parameters, stay within their stage and below the largest size") {
  std::vector<parameter> parameters;
  std::uint64_t first = 0;
  const auto add = [&](std::uint64_t count, std::uint32_t stage) {
    parameters.push_back({.name = "p", .shape = {}, .first = first, .count = count, .stage = stage});
    first += count;
  };
  add(10, 0);
  add(tile_floats_max, 1);
  add(tile_floats_max + 1, 2);
  add(100, 3);
  add(3 * tile_floats_max + 5, 3);
  const auto tiles = cut_tiles(parameters);
  std::uint64_t at = 0;
  for (const auto& t : tiles) {
    CHECK(t.first == at);
    CHECK(t.size > 0);
    CHECK(t.size <= tile_floats_max);
    at += t.size;
  }
  CHECK(at == first);
  std::vector<int> count(4);
  for (const auto& t : tiles) ++count[t.stage];
  CHECK(count == std::vector<int>{1, 1, 2, 4});
}

TEST_CASE("sizes that do not fit each other are refused with the field's name") {
  const auto refused = [](const job_config& job, const char* field) {
    auto model = make_denoiser(tiny_job());
    REQUIRE(model);
    const auto made = assemble_trainer(job, tiny_images(), std::move(*model));
    REQUIRE_FALSE(made);
    CHECK(made.failure().code == errc::invalid_argument);
    CHECK(made.failure().message.find(field) != std::string::npos);
  };
  auto job = tiny_job();
  job.batch.slots = 6;
  refused(job, "batch.slots");
  job = tiny_job();
  job.batch.slots = 0;
  refused(job, "batch.slots");
  job = tiny_job();
  job.batch.size = 33;
  refused(job, "batch.size");
  job = tiny_job();
  job.precision = "fp8";
  refused(job, "precision");
  job = tiny_job();
  job.optimizer.kind = "sgd";
  refused(job, "optimizer.kind");
}

TEST_CASE("buffers are aligned, come back when their last blob is gone, and are kept up to the limit") {
  const auto pool = buffer_pool::make(100, 2);
  {
    std::vector<std::shared_ptr<float>> taken;
    for (int i = 0; i < 3; ++i) taken.push_back(pool->take());
    for (const auto& b : taken) CHECK(reinterpret_cast<std::uintptr_t>(b.get()) % buffer_alignment == 0);
    CHECK(pool->idle() == 0);
    blob shared = share(taken[0], 100);
    taken.erase(taken.begin());
    CHECK(pool->idle() == 0);
    shared = {};
    CHECK(pool->idle() == 1);
  }
  CHECK(pool->idle() == 2);
  blob outlives = share(buffer_pool::make(100, 2)->take(), 100);
  CHECK(outlives.size() == 400);
}
