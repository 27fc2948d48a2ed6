// Weights leave a cluster's store as safetensors and start a job in another: by the commands, as a person
// would.
#include <fstream>

#include "storage/safetensors/tensor_folder.hpp"
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;
namespace fs = std::filesystem;

namespace {

constexpr milliseconds command_limit{60000};

// The exit code of `perdura ckpt WORDS`; shows its output where that is not the one expected.
int ckpt(const fs::path& folder, std::vector<std::string> words, int expected = 0) {
  words.insert(words.begin(), "ckpt");
  chaos::process p({.program = chaos::cluster_options::program_folder() / "perdura",
                    .arguments = words,
                    .output = folder / "ckpt.out"});
  const int code = p.wait(command_limit).value_or(-1);
  if (code != expected) MESSAGE(chaos::tail(folder / "ckpt.out", 20));
  return code;
}

std::vector<std::byte> values_of(const fs::path& folder) {
  const auto files = safetensors::tensor_folder::open(folder).value();
  std::vector<std::byte> all;
  for (const auto& name : files.names()) {
    std::vector<std::byte> bytes(files.find(name)->bytes());
    files.read(name, 0, bytes).value();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

}  // namespace

TEST_CASE("a job starts from weights that another cluster's job has learnt") {
  const chaos::temporary_folder folder("perdura-interchange");
  const auto out = folder.path() / "out", again = folder.path() / "again", second = folder.path() / "second";
  {
    chaos::cluster c;
    start(c, {{.name = "a"}, {.name = "b"}});
    const auto id = c.submit(chaos::tiny_job().text());
    c.wait_finished();
    const auto store = (c.folder() / "data" / "store").string();
    REQUIRE(ckpt(folder.path(), {"export", id, "--store", store, out / "diffusers"}) == 0);
    REQUIRE(ckpt(folder.path(), {"export", id, "--store", store, out / "plain", "--format", "plain"}) == 0);
    REQUIRE(ckpt(folder.path(),
                 {"export", id, "--store", store, out / "average", "--format", "plain", "--ema"}) == 0);
    CHECK(ckpt(folder.path(), {"export", id, "--store", store, out / "plain", "--format", "plain"}, 1) == 1);
  }
  const auto learnt = values_of(out / "plain");
  CHECK(learnt != values_of(out / "average"));

  // Without a learning rate a job ends with the weights that it began with.
  const auto job = chaos::tiny_job().set("seed", "77").set("optimizer.learning_rate", "0").set("steps", "12");
  const auto job_file = folder.path() / "job.toml";
  std::ofstream(job_file) << job.text();
  const auto store = second / "data" / "store";
  REQUIRE(ckpt(folder.path(), {"import", out / "diffusers", "--job", job_file, "--store", store, "--as",
                               "j000001-tiny"}) == 0);
  chaos::cluster c({.folder = second});
  start(c, {{.name = "a"}, {.name = "b"}});
  REQUIRE(c.submit(job.text()) == "j000001-tiny");
  c.wait_finished();
  REQUIRE(ckpt(folder.path(), {"export", "j000001-tiny@12", "--store", store, again, "--format", "plain"}) ==
          0);
  CHECK(values_of(again) == learnt);
}
