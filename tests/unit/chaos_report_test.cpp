#include <doctest/doctest.h>

#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "chaos/proc/process.hpp"
#include "chaos/scenarios/report.hpp"

using namespace perdura;
using namespace perdura::chaos;

namespace {

admin::recovery_info recovery(std::int64_t time_ms, double detected_ms, std::optional<double> committed_ms) {
  admin::recovery_info r;
  r.time_ms = time_ms;
  r.detected_ms = detected_ms;
  r.committed_ms = committed_ms;
  r.recomputed_slots = 5;
  return r;
}

run_report sample_run() {
  run_report run{.job_text = "steps = 2\n", .seed = 7, .slots = 16, .seconds = 1.5, .faults = true};
  run.job.final_hash = "00ff";
  run.steps = {{.step = step_number{1}, .loss = 1.0, .ms = 9.0},
               {.step = step_number{2}, .loss = 0.5, .ms = 8.0}};
  run.blows = {{.what = "worker a/0 killed",
                .kind = "worker_killed",
                .step = 1,
                .time_ms = 1000,
                .detected_ms = 3.0,
                .committed_ms = 40.0,
                .recomputed_slots = 5},
               {.what = "node-4 started", .kind = "node_joined", .step = 2, .time_ms = 2000}};
  return run;
}

}  // namespace

TEST_CASE("a blow's times are counted from the kill, not from when the coordinator saw the first sign") {
  std::vector<blow> blows{{.what = "w", .kind = "worker_killed", .step = 1, .time_ms = 1000}};
  match(blows, {recovery(500, 1, 2), recovery(1004, 2, 30)});
  CHECK(blows[0].detected_ms == 6);
  CHECK(blows[0].committed_ms == 34);
  CHECK(blows[0].recomputed_slots == 5);
}

TEST_CASE("a blow that nobody noticed stays without times, and a joiner is no recovery") {
  std::vector<blow> blows{{.what = "w", .kind = "worker_killed", .step = 1, .time_ms = 1000},
                          {.what = "n", .kind = "node_joined", .step = 1, .time_ms = 10}};
  match(blows, {recovery(500, 1, 2)});
  CHECK_FALSE(blows[0].detected_ms.has_value());
  CHECK_FALSE(blows[1].detected_ms.has_value());
}

TEST_CASE("run.json holds the hash, each step and each recovery, and is recognised by the same job alone") {
  temporary_folder folder("perdura-report-test");
  auto file = folder.path() / "run.json";
  write_json(sample_run(), file);
  std::ifstream in(file);
  auto all = boost::json::parse(std::string{std::istreambuf_iterator<char>(in), {}}).as_object();
  CHECK(all["final_hash"].as_string() == "00ff");
  CHECK(all["steps"].as_array().size() == 2);
  REQUIRE(all["recoveries"].as_array().size() == 1);
  CHECK(all["recoveries"].as_array()[0].at("committed_ms").as_double() == 40);
  CHECK(all["joins"].as_array().size() == 1);
  CHECK(earlier_hash(file, "steps = 2\n") == "00ff");
  CHECK_FALSE(earlier_hash(file, "steps = 3\n").has_value());
  CHECK_FALSE(earlier_hash(folder.path() / "none", "steps = 2\n").has_value());
}

TEST_CASE("the loss is drawn into a picture") {
  temporary_folder folder("perdura-report-test");
  auto picture = folder.path() / "loss.png";
  CHECK(draw_loss(sample_run(), picture, folder.path()));
  CHECK(std::filesystem::file_size(picture) > 1000);
}
