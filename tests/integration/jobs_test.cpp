// Two jobs on one cluster: workers go from one to the other, and each ends with the bits that it has alone.
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

constexpr milliseconds patience{180000};

chaos::job_text low_job(std::uint64_t steps) {
  return chaos::tiny_job().set("name", "\"low\"").set("steps", std::to_string(steps));
}

chaos::job_text high_job(std::uint64_t steps) {
  return chaos::tiny_job()
      .set("name", "\"high\"")
      .set("seed", "9")
      .set("steps", std::to_string(steps))
      .set("priority", "5")
      .set("elastic.min_workers", "2")
      .set("elastic.max_workers", "2");
}

std::string hash_alone(chaos::job_text job) {
  return undisturbed_hash(job.set("elastic.min_workers", "1").set("elastic.max_workers", "0"));
}

std::size_t serving(chaos::cluster& c, const std::string& job) {
  const auto all = c.workers();
  return static_cast<std::size_t>(
      std::count_if(all.begin(), all.end(), [&](const auto& w) { return w.job == job; }));
}

bool has_event(chaos::cluster& c, const std::string& kind, const std::string& job) {
  const auto all = c.events();
  return std::any_of(all.begin(), all.end(),
                     [&](const auto& e) { return e.kind == kind && e.job == job && !e.reason.empty(); });
}

}  // namespace

TEST_CASE("a higher job that comes later takes workers, and both run on to the bits that they have alone") {
  const auto low = low_job(1500);  // still at it when the other has loaded
  const auto high = high_job(60);
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}, {.name = "c"}});
  const auto first = c.submit(low.text());
  c.wait_job(
      "to use all workers", first, [&](const auto& j) { return j.step.value >= 10; }, patience);
  CHECK(serving(c, first) == 3);
  const auto second = c.submit(high.text());
  c.wait_job(
      "to train beside the other", second, [](const auto& j) { return j.step.value >= 3; }, patience);
  CHECK(serving(c, second) == 2);
  CHECK(serving(c, first) == 1);
  const auto higher = c.wait_finished(second, patience);
  chaos::wait_until("the lower job to have all workers again", patience,
                    [&] { return serving(c, first) == 3 || admin::has_ended(c.job(first).state); });
  const auto lower = c.wait_finished(first, patience);
  CHECK(higher.final_hash == hash_alone(high));
  CHECK(lower.final_hash == hash_alone(low));
  CHECK(lower.recoveries == 0);  // whoever leaves hands over first
  CHECK(lower.timeline == first_timeline);
  CHECK(has_event(c, "worker_taken", first));
}

TEST_CASE("a job that is stopped for a higher one goes on later to the same bits, and says what it lacks") {
  const auto low = low_job(200).set("elastic.min_workers", "2");
  const auto high = high_job(60);
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}});
  const auto first = c.submit(low.text());
  c.wait_job(
      "to train", first, [&](const auto& j) { return j.step.value >= 15; }, patience);
  const auto second = c.submit(high.text());
  c.wait_job(
      "to be stopped", first, [](const auto& j) { return j.state == admin::job_state::waiting; }, patience);
  const auto stopped = c.job(first);
  CHECK(stopped.last_checkpoint == stopped.step);  // nothing will be computed twice
  chaos::wait_until("the higher job to have both workers", patience, [&] { return serving(c, second) == 2; });
  CHECK(c.job(first).why == "needs 2 workers, 0 are free; 2 serve " + second + " (priority 5)");
  const auto second_end = c.wait_finished(second, patience);
  const auto first_end = c.wait_finished(first, patience);
  CHECK(second_end.final_hash == hash_alone(high));
  CHECK(first_end.final_hash == hash_alone(low));
  CHECK(has_event(c, "job_stopped", first));
}

TEST_CASE("a job that cannot fit holds no worker and says what is missing, until it can") {
  chaos::cluster c;
  start(c, {{.name = "a"}, {.name = "b"}});
  REQUIRE(c.admin().drain("a", std::nullopt));
  const auto job = c.submit(chaos::tiny_job().set("elastic.min_workers", "2").text());
  c.wait_job("to wait", job, [](const auto& j) { return j.why.find("needs") != std::string::npos; });
  CHECK(c.job(job).why == "needs 2 workers, 1 is free; a is draining");
  CHECK(serving(c, job) == 0);
  c.start_node({.name = "c"});
  const auto end = c.wait_finished(job, patience);
  CHECK(end.final_hash == tiny_hash());
  for (const auto& w : c.workers())
    if (w.name == "a/0") CHECK(w.leaving.is_going);
}
