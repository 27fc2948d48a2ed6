// Where parameters are sharded they are gathered while others are computed with: read off what the workers
// say they did when.
#include <boost/json.hpp>
#include <fstream>
#include <iterator>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

struct span {
  std::string what;  // "gather", "wait", "forward" or "backward"
  int stage = 0;
  std::int64_t step = 0;
  double begin = 0, end = 0;  // microseconds
};

// A file ends where its worker did: the last line may be cut off.
std::vector<span> read_spans(const std::filesystem::path& file) {
  std::vector<span> found;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    if (line.size() < 2 || line.back() != ',') continue;
    line.pop_back();
    boost::system::error_code broken;
    const auto event = boost::json::parse(line, broken);
    if (broken || event.at("ph").as_string() != "X") continue;
    const std::string name(event.at("name").as_string());
    const auto space = name.find(' ');
    if (name.starts_with("apply")) continue;
    const auto begin = event.at("ts").to_number<double>();
    found.push_back({name.substr(0, space), std::stoi(name.substr(space + 1)),
                     event.at("args").at("step").to_number<std::int64_t>(), begin,
                     begin + event.at("dur").to_number<double>()});
  }
  return found;
}

}  // namespace

TEST_CASE("stages are gathered while the ones before them are computed, in both passes") {
  chaos::cluster c({.keep_spans = true});
  start(c, {{.name = "a"}, {.name = "b"}});
  c.submit(chaos::tiny_job()
               .set("sharding", "\"parameters\"")
               .set("replicas", "1")
               .set("model.depth", "4")
               .set("model.width", "64")
               .text());
  c.wait_finished();
  std::size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(c.folder() / "spans")) {
    ++files;
    const auto all = read_spans(file.path());
    std::size_t gathered = 0, overlapped = 0, forward = 0, backward = 0;
    for (const auto& g : all) {
      forward += g.what == "forward" ? 1 : 0;
      backward += g.what == "backward" ? 1 : 0;
      if (g.what != "gather") continue;
      ++gathered;
      for (const auto& s : all) {
        const bool computes = s.what == "forward" || s.what == "backward";
        // The neighbour that is computed with while this stage is under way.
        if (!computes || s.step != g.step || std::abs(s.stage - g.stage) != 1) continue;
        if (g.begin < s.end && s.begin < g.end) {
          ++overlapped;
          break;
        }
      }
    }
    CHECK(gathered > 0);
    CHECK(forward > 0);
    CHECK(backward > 0);
    // All but the first stage of a pass are asked for a stage ahead.
    CHECK(overlapped * 2 > gathered);
  }
  CHECK(files == 2);
}
