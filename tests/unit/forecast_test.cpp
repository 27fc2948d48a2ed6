#include "coordinator/logic/forecast.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

using namespace perdura;
using namespace perdura::coordinator;

namespace {

constexpr double gigabit = 1e9 / 8;

// Eight tiles of 1,000 parameters in four stages.
job_costs costs() {
  job_costs c;
  for (std::uint32_t t = 0; t < 8; ++t) c.tiles.push_back({t * 1000UL, 1000, t / 2});
  c.process_bytes = 10'000;
  c.slot_bytes = 500;
  c.workspace_bytes = 300;
  c.slot_seconds = 0.01;
  return c;
}

std::vector<candidate> workers(std::size_t count) {
  std::vector<candidate> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back({{0, i + 1}});
  return all;
}

job_config job_at(const char* sharding) {
  job_config job;
  job.sharding = sharding;
  return job;
}

std::vector<std::string> names_of(const std::vector<candidate>& all) {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < all.size(); ++i) names.push_back("w" + std::to_string(i + 1));
  return names;
}

std::string advice_for(const job_config& job, const std::vector<candidate>& all) {
  std::string lines;
  for (const auto& line : advice(forecast_all(costs(), job, all, gigabit), job, all, names_of(all)))
    lines += line + "\n";
  return lines;
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("replicated, each worker has all parameters, moments and averages") {
  const auto f = forecast(costs(), job_at("replicated"), sharding_level::replicated, workers(4), gigabit);
  for (const auto& m : f.of) {
    CHECK(m.memory.parameters == 32'000);
    CHECK(m.memory.moments == 64'000);
    CHECK(m.memory.average == 32'000);
    CHECK(m.memory.master == 0);
    CHECK(m.memory.gathered == 0);
    CHECK(m.memory.process == 10'000);
    CHECK(m.memory.activations == 800);
    CHECK(m.tiles_held == 8);
    CHECK(m.tiles_owned == 2);
    CHECK(m.slots == 4);
    CHECK(m.compute_seconds == doctest::Approx(0.04));
  }
}

TEST_CASE("each level leaves less with a worker than the one before") {
  const auto job = job_at("optimizer");
  const auto all = forecast_all(costs(), job, workers(4), gigabit);
  const auto of = [&](sharding_level l) { return all[static_cast<std::size_t>(l)].of[0].memory; };
  // Two of four hold each tile.
  CHECK(of(sharding_level::optimizer).moments == 32'000);
  CHECK(of(sharding_level::optimizer).average == 16'000);
  CHECK(of(sharding_level::optimizer).parameters == 32'000);
  CHECK(of(sharding_level::gradients).gradients < of(sharding_level::optimizer).gradients);
  CHECK(of(sharding_level::parameters).parameters == 16'000);
  CHECK(of(sharding_level::parameters).gathered <= 2 * 2'000 * 4);
  CHECK(of(sharding_level::parameters).gathered > 0);
  // Slots side by side.
  CHECK(of(sharding_level::gradients).activations == 300 + 4 * 500);
}

TEST_CASE("under bf16 what is computed with takes half, and master weights are with the holders") {
  auto job = job_at("optimizer");
  job.precision = "bf16";
  const auto f = forecast(costs(), job, sharding_level::optimizer, workers(4), gigabit);
  CHECK(f.of[0].memory.parameters == 16'000);
  CHECK(f.of[0].memory.master == 16'000);
}

TEST_CASE("what is sent is received, at every level and with any workers") {
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100; ++i) {
    auto all = workers(1 + rng() % 7);
    for (auto& w : all) w.slots_per_second = 0.1 * static_cast<double>(1 + rng() % 20);
    auto job = job_at("optimizer");
    job.replicas = static_cast<std::uint32_t>(1 + rng() % 4);
    job.batch.pass_slots = 1U << (rng() % 4);
    for (const auto& f : forecast_all(costs(), job, all, gigabit)) {
      std::uint64_t in = 0;
      for (const auto& m : f.of) in += m.bytes_in;
      CHECK(in == f.bytes_on_wire);
      CHECK(f.step_seconds >= f.compute_seconds);
    }
  }
}

TEST_CASE("replicated state is reduced to every other worker, sharded parameters are fetched at every pass") {
  const auto job = job_at("parameters");
  // Of two workers each sends one block's sum of what the other owns, and what it has reduced.
  CHECK(forecast(costs(), job, sharding_level::replicated, workers(2), gigabit).bytes_on_wire ==
        2 * (16'000 + 16'000));
  auto alone = job;
  alone.replicas = 1;
  alone.batch.slots = 8;
  const auto f = forecast(costs(), alone, sharding_level::parameters, workers(2), gigabit);
  // One pass of four slots each: half of it is elsewhere, there and back but for the last stage's.
  CHECK(f.bytes_on_wire == 2 * 16'000 + 2 * (2 * 16'000 - 4'000));
}

TEST_CASE("a slow link shows in the step, not in the computing") {
  const auto job = job_at("optimizer");
  const auto fast = forecast(costs(), job, sharding_level::optimizer, workers(4), 1000 * gigabit);
  const auto slow = forecast(costs(), job, sharding_level::optimizer, workers(4), gigabit / 1000);
  CHECK(fast.compute_seconds == slow.compute_seconds);
  CHECK(fast.step_seconds == doctest::Approx(fast.compute_seconds).epsilon(0.01));
  CHECK(slow.step_seconds > 2 * fast.step_seconds);
}

TEST_CASE("two workers with two copies under optimizer hold everything: said, with what would help") {
  const auto lines = advice_for(job_at("optimizer"), workers(2));
  CHECK(mentions(lines, "everybody holds everything"));
  CHECK(mentions(lines, "from 3 workers on"));
  CHECK(mentions(lines, "replicas = 1"));
  CHECK_FALSE(mentions(advice_for(job_at("replicated"), workers(2)), "everybody"));
  CHECK_FALSE(mentions(advice_for(job_at("optimizer"), workers(3)), "everybody"));
}

TEST_CASE("more copies than hosts or racks are said to be of no use") {
  auto all = workers(6);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].at = {i < 3 ? "a" : "b", "r", ""};
  auto job = job_at("optimizer");
  job.replicas = 3;
  CHECK(mentions(advice_for(job, all), "replicas = 3 on 2 hosts"));
  job.replicas = 2;
  CHECK_FALSE(mentions(advice_for(job, all), "hosts"));
  CHECK(mentions(advice_for(job, all), "replicas = 2 in 1 rack"));
}

TEST_CASE("fewer slots than four a worker, and workers that get none, are said with the numbers") {
  auto job = job_at("replicated");
  const auto lines = advice_for(job, workers(5));
  CHECK(mentions(lines, "batch.slots = 16 is less than 4 for each of 5 workers"));
  CHECK(mentions(lines, "25% longer"));
  CHECK(mentions(lines, "32 would do"));
  CHECK(mentions(lines, "gets no slots"));
  CHECK(advice_for(job, workers(4)).empty());
}

TEST_CASE("passes of more slots than a worker has are said to be of no use") {
  auto job = job_at("gradients");
  job.batch.pass_slots = 8;
  CHECK(mentions(advice_for(job, workers(4)), "no worker has more than 4 slots"));
  job.batch.pass_slots = 4;
  CHECK_FALSE(mentions(advice_for(job, workers(4)), "pass_slots"));
}

TEST_CASE("a worker whose memory does not suffice is named, with the level that would fit") {
  auto all = workers(4);
  const auto levels = forecast_all(costs(), job_at("replicated"), all, gigabit);
  for (auto& w : all) w.memory_bytes = 1U << 30;
  all[2].memory_bytes = levels[3].of[2].memory.total();
  const auto lines = advice_for(job_at("replicated"), all);
  CHECK(mentions(lines, "w3 needs"));
  CHECK(mentions(lines, "fits with sharding = \""));
  all[2].memory_bytes = 10;
  CHECK(mentions(advice_for(job_at("replicated"), all), "it fits at no level"));
}
