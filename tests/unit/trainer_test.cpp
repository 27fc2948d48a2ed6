#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "kernels/hash.hpp"
#include "kernels/philox.hpp"
#include "worker/data/image_set.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/state.hpp"
#include "worker/trainer/trainer.hpp"

using namespace perdura;
using namespace perdura::worker;

namespace {

const std::atomic<bool> go_on{false};

job_config tiny_job() {
  job_config job;
  job.model.width = 32;
  job.model.depth = 1;
  job.model.heads = 2;
  job.model.patch = 7;
  job.batch.size = 32;
  job.batch.slots = 8;
  job.optimizer.learning_rate = 1e-2;
  return job;
}

// Fashion-MNIST's shape, smooth blobs for pictures.
image_set tiny_images() {
  image_set data{.channels = 1, .height = 28, .width = 28, .classes = 10, .pixels = {}, .labels = {}};
  for (std::uint32_t i = 0; i < 50; ++i) {
    data.labels.push_back(static_cast<std::uint8_t>(i % 10));
    for (std::uint32_t y = 0; y < 28; ++y)
      for (std::uint32_t x = 0; x < 28; ++x)
        data.pixels.push_back(static_cast<std::uint8_t>(x * (i % 10) + y * (i % 3)));
  }
  return data;
}

std::unique_ptr<trainer> make_tiny(const job_config& job = tiny_job()) {
  pin_numerics();
  auto model = make_denoiser(job);
  REQUIRE(model);
  auto made = assemble_trainer(job, tiny_images(), std::move(*model));
  REQUIRE(made);
  (*made)->initialise();
  return std::move(*made);
}

blob slice(const blob& all, const tile& t) {
  const auto owner = std::make_shared<blob>(all);
  return {owner, all.data() + t.first * sizeof(float), t.size * sizeof(float)};
}

step_outcome outcome_of(step_number step) {
  step_outcome outcome;
  outcome.clip_scale = 0.9F;
  outcome.learning_rate = 1e-2F;
  outcome.optimizer_time = step.value;
  return outcome;
}

std::vector<reduced_tile> reduce_all(trainer& t, const std::vector<block_gradient>& blocks) {
  std::vector<reduced_tile> reduced;
  for (std::uint32_t i = 0; i < t.tiles().size(); ++i) {
    std::vector<tile_partial> partials;
    for (const auto& b : blocks)
      partials.push_back({b.slots, i == 0 ? b.loss : 0.0, slice(b.values, t.tiles()[i])});
    reduced.push_back(t.reduce(tile_id(i), partials));
  }
  return reduced;
}

std::uint64_t state_hash(const trainer& t) {
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t i = 0; i < t.tiles().size(); ++i) hashes.push_back(t.hash_tile(tile_id(i)));
  return kernels::hash64(std::as_bytes(std::span(hashes)));
}

// Trains with one trainer a worker, each computing its blocks; every tile is reduced by another worker in
// turn.
std::uint64_t train(const std::vector<std::vector<block>>& workers, std::uint64_t steps,
                    double* last_loss = nullptr) {
  std::vector<std::unique_ptr<trainer>> trainers;
  for (std::size_t i = 0; i < workers.size(); ++i) trainers.push_back(make_tiny());
  for (step_number n(1); n.value <= steps; n = n + 1) {
    std::vector<block_gradient> blocks;
    for (std::size_t i = 0; i < workers.size(); ++i)
      for (const auto& b : workers[i]) blocks.push_back(*trainers[i]->compute_block(n, b, go_on));
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
  const auto a = t->compute_block(step_number(3), {2, 2}, go_on);
  const auto other_slots = t->compute_block(step_number(3), {4, 2}, go_on);
  const auto other_step = t->compute_block(step_number(4), {2, 2}, go_on);
  const auto again = t->compute_block(step_number(3), {2, 2}, go_on);
  CHECK(a->values == again->values);
  CHECK(a->loss == again->loss);
  CHECK_FALSE(a->values == other_slots->values);
  CHECK_FALSE(a->values == other_step->values);
}

TEST_CASE("a block whose stop flag is set gives nothing") {
  auto t = make_tiny();
  const std::atomic<bool> stop{true};
  CHECK_FALSE(t->compute_block(step_number(1), {0, 4}, stop).has_value());
}

TEST_CASE("the reduced gradient is the mean over the batch") {
  auto job = tiny_job();
  job.batch.size = 24;
  job.batch.slots = 4;
  auto t = make_tiny(job);
  std::vector<block_gradient> blocks;
  for (std::uint32_t s = 0; s < 4; ++s) blocks.push_back(*t->compute_block(step_number(1), {s, 1}, go_on));
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
      for (const auto& b : blocks) want += reinterpret_cast<const float*>(b.values.data())[region.first + k];
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
  const auto left = t->compute_block(step_number(1), {0, 4}, go_on);
  const auto right = t->compute_block(step_number(1), {4, 4}, go_on);
  const auto& region = t->tiles()[0];
  const std::vector<tile_partial> aligned{{left->slots, left->loss, slice(left->values, region)},
                                          {right->slots, right->loss, slice(right->values, region)}};
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
  const auto all = t->compute_block(step_number(1), {0, 8}, go_on);
  const auto poisoned = [&](tile_id id, bool poison) {
    const auto part = slice(all->values, t->tiles()[id.value]);
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
  const auto all = t->compute_block(step_number(1), {0, 8}, go_on);
  const std::vector<tile_partial> partials{
      {{0, 8}, std::numeric_limits<double>::quiet_NaN(), slice(all->values, t->tiles()[0])}};
  CHECK_FALSE(t->reduce(tile_id(0), partials).finite);
}

TEST_CASE("a skipped step leaves the state as it is") {
  auto t = make_tiny();
  const auto before = state_hash(*t);
  const auto all = t->compute_block(step_number(1), {0, 8}, go_on);
  step_outcome outcome = outcome_of(step_number(1));
  outcome.skipped = true;
  outcome.optimizer_time = 0;
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i)
    t->apply(tile_id(i), slice(all->values, t->tiles()[i]), outcome);
  CHECK(state_hash(*t) == before);
  outcome.skipped = false;
  outcome.optimizer_time = 1;
  for (std::uint32_t i = 0; i < t->tiles().size(); ++i)
    t->apply(tile_id(i), slice(all->values, t->tiles()[i]), outcome);
  CHECK(state_hash(*t) != before);
}

TEST_CASE("a trainer that installs another's tiles goes on with the same bits") {
  auto a = make_tiny();
  const auto step_on = [](trainer& t, step_number n) {
    const auto reduced = reduce_all(t, {*t.compute_block(n, {0, 8}, go_on)});
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
  const auto reduced = reduce_all(*a, {*a->compute_block(step_number(1), {0, 8}, go_on)});
  for (std::uint32_t i = 0; i < a->tiles().size(); ++i) {
    a->apply(tile_id(i), reduced[i].gradient, outcome_of(step_number(1)));
    b->install_parameters(tile_id(i), a->copy_parameters(tile_id(i)).bytes());
  }
  CHECK(a->compute_block(step_number(2), {0, 2}, go_on)->values ==
        b->compute_block(step_number(2), {0, 2}, go_on)->values);
  CHECK(state_hash(*a) != state_hash(*b));
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
  const auto reduced = reduce_all(*t, {*t->compute_block(step_number(1), {0, 8}, go_on)});
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
  const auto gradient = t->compute_block(step_number(1), {0, 1}, go_on)->values;
  const auto numbers = t->numeric_class();
  CHECK(numbers != 0);
  CHECK(t->numeric_class() == numbers);
  CHECK(make_tiny()->numeric_class() == numbers);
  CHECK(state_hash(*t) == state);
  CHECK(t->compute_block(step_number(1), {0, 1}, go_on)->values == gradient);
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
