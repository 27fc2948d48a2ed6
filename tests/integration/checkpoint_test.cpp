// Jobs that begin from checkpoints, and what the store does meanwhile.
#include <filesystem>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

// With a checkpoint at half of its steps: the first snapshot is never skipped for one that is still being
// written.
chaos::job_text kept_job() {
  return chaos::tiny_job().set("checkpoint.keep", "10").set("checkpoint.interval_steps", "20");
}

}  // namespace

TEST_CASE("a job that starts from another's checkpoint ends with the bits of a run that never stopped") {
  chaos::cluster c;
  start(c, {{.name = "a", .devices = 2}, {.name = "b"}});
  const auto first = c.submit(kept_job().text());
  const auto whole = c.wait_finished(first);
  auto job = kept_job().set("start_from", "\"" + first + "@20\"");
  SUBCASE("as it was") {}
  SUBCASE("sharded otherwise") { job.set("sharding", "\"parameters\"").set("replicas", "2"); }
  SUBCASE("its state in whole, raw chunks") { job.set("checkpoint.codec", "\"raw\""); }
  const auto second = c.submit(job.text());
  const auto end = c.wait_finished(second);
  CHECK(end.final_hash == whole.final_hash);
  CHECK(c.steps().front().step.value == 21);
}

TEST_CASE("a job that cannot start from what it names fails and says why") {
  chaos::cluster c;
  start(c, {{.name = "a"}});
  const auto first = c.submit(kept_job().text());
  c.wait_finished(first);
  std::string why;
  chaos::job_text job = kept_job();
  SUBCASE("no such checkpoint") {
    job.set("start_from", "\"" + first + "@21\"");
    why = "there is no checkpoint";
  }
  SUBCASE("another model") {
    job.set("start_from", "\"" + first + "@20\"").set("model.width", "64");
    why = "it is of another model";
  }
  SUBCASE("of its own last step") {
    job.set("start_from", "\"" + first + "\"");
    why = "the job ends after step 40";
  }
  const auto second = c.submit(job.text());
  chaos::wait_until("the job to fail", chaos::cluster::default_limit,
                    [&] { return c.job(second).state == admin::job_state::failed; });
  CHECK_MESSAGE(c.job(second).why.find(why) != std::string::npos, c.job(second).why);
}

TEST_CASE("a cluster whose store is gone goes on from its tier, to the same bits") {
  const chaos::temporary_folder shelf("perdura-shelf");
  chaos::cluster_options options;
  options.settings += "[tier.shelf]\nkind = \"folder\"\nfolder = \"" + shelf.path().string() + "\"\n";
  const auto job = chaos::tiny_job().set("steps", "2000").set("checkpoint.interval_steps", "50");
  chaos::cluster c(options);
  start(c, {{.name = "a"}, {.name = "b"}});
  const auto id = c.submit(job.text());
  chaos::wait_until("a checkpoint on the shelf", chaos::cluster::default_limit,
                    [&] { return std::filesystem::exists(shelf.path() / "manifests" / id); });
  c.kill_all();
  std::filesystem::remove_all(c.folder() / "data" / "store");
  std::filesystem::remove_all(c.folder() / "data" / "index");
  start(c, {{.name = "a"}, {.name = "b"}});
  const auto end = c.wait_finished();
  CHECK(end.timeline.value == 2);
  CHECK(end.final_hash == undisturbed_hash(job));
  const auto recoveries = c.job().recoveries;
  CHECK(recoveries >= 1);
}

TEST_CASE("checkpoints come by time too, where that is asked for") {
  chaos::cluster c;
  start(c, {{.name = "a"}});
  c.submit(chaos::tiny_job()
               .set("steps", "100000")
               .set("checkpoint.interval_steps", "100000")
               .set("checkpoint.interval_s", "1")
               .text());
  c.wait_event("checkpoint_committed");
}
