// `perdura ckpt export` and `import`: what goes wrong before a byte of weights is read.
#include "coordinator/console/interchange_commands.hpp"
#include "tests/unit/console_fixture.hpp"

using namespace perdura;
using namespace perdura::console;

TEST_CASE("a model's tables are read as perdura-worker prints them, and nothing else") {
  const auto tables =
      parse_tables(R"({"tiles": [{"first": 0, "size": 6, "stage": 0}, {"first": 6, "size": 2, "stage": 1}],
    "parameters": [{"name": "a", "shape": [2, 3], "first": 0}, {"name": "b", "shape": [2], "first": 6}]})");
  REQUIRE(tables);
  CHECK(tables->tiles == std::vector<tile>{{0, 6, 0}, {6, 2, 1}});
  CHECK(tables->tensors == std::vector<named_tensor>{{"a", {2, 3}, 0}, {"b", {2}, 6}});
  for (const auto* wrong :
       {"", "[]", "{}", R"({"tiles": []})", R"({"tiles": [{"first": -1, "size": 1, "stage": 0}]})",
        R"({"tiles": [], "parameters": [{"name": "a", "shape": ["2"], "first": 0}]})"}) {
    const auto refused = parse_tables(wrong);
    REQUIRE_FALSE(refused);
    CHECK(refused.failure().code == errc::corrupt);
  }
}

TEST_CASE("an export of a checkpoint that is not there says so and makes nothing") {
  temporary_folder folder;
  const auto out = folder.path / "weights";
  for (const auto* name : {"nobody", "nobody@7", "@7"}) {
    const std::vector<std::string> words{"ckpt",       "export",  name,
                                         out.string(), "--store", folder.path.string()};
    const auto done = running(folder.path, words).wait();
    CHECK(done.code == 1);
    CHECK(done.err.find("no checkpoint") != std::string::npos);
    CHECK_FALSE(std::filesystem::exists(out));
  }
}
