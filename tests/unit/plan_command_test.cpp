// `perdura plan FILE`: what a job would take, before anything runs.
#include <boost/json.hpp>

#include "coordinator/console/commands.hpp"
#include "coordinator/console/launch.hpp"
#include "coordinator/console/plan_file.hpp"
#include "tests/unit/console_fixture.hpp"

using namespace perdura;
using namespace perdura::console;
namespace json = boost::json;

namespace {

// What a worker prints of a model of two stages and four tiles.
const std::string costs_text =
    R"({"tiles": [{"first": 0, "size": 1000, "stage": 0}, {"first": 1000, "size": 1000, "stage": 0},
  {"first": 2000, "size": 1000, "stage": 1}, {"first": 3000, "size": 1000, "stage": 1}],
  "costs": {"process_bytes": 1000, "slot_bytes": 100, "workspace_bytes": 10, "slot_seconds": 0.01,
            "reduce_seconds": 1e-9, "apply_seconds": 1e-9}})";

}  // namespace

TEST_CASE("plan FILE shows who would hold what, at each level, without a coordinator") {
  temporary_folder folder;
  write_text(folder.path / "job.toml", "name = \"small\"\nsharding = \"optimizer\"\n");
  write_text(folder.path / "costs.json", costs_text);
  const std::vector<std::string> words{"plan",    (folder.path / "job.toml").string(),   "--workers", "2",
                                       "--costs", (folder.path / "costs.json").string(), "--json"};
  const auto done = running(folder.path, words).wait();
  REQUIRE(done.code == 0);
  const auto all = json::parse(done.out).as_object();
  CHECK(all.at("workers").as_array().size() == 2);
  CHECK(all.at("workers").at(0).at("tiles_held").to_number<int>() == 4);
  CHECK(all.at("levels").as_array().size() == 4);
  CHECK(all.at("levels").at(1).at("is_this_job").as_bool());
  CHECK(std::string(all.at("advice").at(0).at("text").as_string()).find("everybody holds everything") !=
        std::string::npos);
}

TEST_CASE("a machine's description is read in full, and what is wrong with it is said") {
  const auto some = parse_machine("node-1=2,rack=r1,zone=east,gib=8,speed=0.5");
  REQUIRE(some);
  REQUIRE(some->size() == 2);
  CHECK((*some)[1].name == "node-1/1");
  CHECK((*some)[1].is.at == node_labels{"node-1", "r1", "east"});
  CHECK((*some)[1].is.memory_bytes == 4ULL << 30);
  CHECK((*some)[1].is.slots_per_second == 0.5);
  CHECK(parse_machine("a=1,host=b")->at(0).is.at.host == "b");
  for (const auto* wrong :
       {"node-1", "=2", "node-1=0", "node-1=x", "a=1,rack", "a=1,gib=-1", "a=1,colour=red"}) {
    const auto refused = parse_machine(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.failure().code == errc::invalid_argument);
    CHECK(refused.failure().message.find("expected NAME=DEVICES") != std::string::npos);
  }
}

TEST_CASE("costs that were not measured or are no costs are refused") {
  CHECK(parse_costs(costs_text));
  for (const auto* wrong : {"{}", "[", R"({"tiles": []})", R"({"tiles": [], "costs": {}})"})
    CHECK(parse_costs(wrong).failure().code == errc::corrupt);
}

TEST_CASE("a plan for a file that is no job says so") {
  temporary_folder folder;
  write_text(folder.path / "job.toml", "colour = 1\n");
  const auto done = running(folder.path, {"plan", (folder.path / "job.toml").string()}).wait();
  CHECK(done.code == 1);
  CHECK(done.err.find("colour") != std::string::npos);
}

TEST_CASE("of a program that fails the last line on standard error is the reason") {
  CHECK(output_of("/bin/sh", {"-c", "echo one; echo two"}).value() == "one\ntwo\n");
  const auto failed = output_of("/bin/sh", {"-c", "echo first >&2; echo the reason >&2; exit 3"});
  REQUIRE_FALSE(failed);
  CHECK(failed.failure().message == "sh failed: the reason");
  CHECK_FALSE(output_of("/nowhere/at-all", {}));
}
