#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "actors/runtime/folders.hpp"
#include "actors/runtime/incarnation.hpp"
#include "actors/runtime/log_sink.hpp"

using namespace perdura;
namespace fs = std::filesystem;

namespace {

struct temporary_folder {
  std::string path;
  temporary_folder() {
    char name[] = "/tmp/perdura_settings_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~temporary_folder() { fs::remove_all(path); }
};

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a user's folders are the XDG ones, root's the system's, and settings outrank both") {
  cluster_config config;
  const auto user = runtime::choose_folders(config, {{"HOME", "/h"}}, false, 7);
  REQUIRE(user.has_value());
  CHECK(user->data == "/h/.local/share/perdura");
  CHECK(user->log == "/h/.local/state/perdura/log");
  CHECK(user->runtime == "/tmp/perdura-7/perdura");
  const auto xdg = runtime::choose_folders(
      config, {{"XDG_DATA_HOME", "/d"}, {"XDG_STATE_HOME", "/s"}, {"XDG_RUNTIME_DIR", "/r"}}, false, 7);
  REQUIRE(xdg.has_value());
  CHECK(xdg->data == "/d/perdura");
  CHECK(xdg->log == "/s/perdura/log");
  CHECK(xdg->runtime == "/r/perdura");
  const auto root = runtime::choose_folders(config, {{"HOME", "/root"}, {"XDG_DATA_HOME", "/d"}}, true, 0);
  REQUIRE(root.has_value());
  CHECK(root->data == "/var/lib/perdura");
  CHECK(root->log == "/var/log/perdura");
  CHECK(root->runtime == "/run/perdura");
  config.data_folder = "/mine/../mine/x";
  CHECK(runtime::choose_folders(config, {}, true, 0)->data == "/mine/x");
}

TEST_CASE("without HOME the error names the setting to use") {
  const auto none = runtime::choose_folders({}, {{"XDG_DATA_HOME", "relative"}}, false, 7);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.failure().message.find("data_folder") != std::string::npos);
}

TEST_CASE("folders are made for their owner alone, and one that cannot be made is named") {
  const temporary_folder t;
  const runtime::folders f{t.path + "/a/data", t.path + "/log", t.path + "/run"};
  REQUIRE(runtime::make_folders(f).has_value());
  REQUIRE(runtime::make_folders(f).has_value());
  CHECK((fs::status(f.data).permissions() & fs::perms::all) == fs::perms::owner_all);
  std::ofstream(t.path + "/file") << "x";
  const auto refused = runtime::make_folders({t.path + "/file", f.log, f.runtime});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.failure().message.find(t.path + "/file") != std::string::npos);
}

TEST_CASE("a log line has time, level, role and text, and is one line whatever it holds") {
  const temporary_folder t;
  const std::string file = t.path + "/logs/x.log";
  REQUIRE(runtime::open_log({.role = "worker 100%v", .file = file}).has_value());
  log::info("first\nsecond \x1b[31m");
  log::debug("below the level");
  log::error("bad");
  std::istringstream lines(text_of(file));
  std::string line;
  REQUIRE(std::getline(lines, line));
  const std::string time = R"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d)";
  CHECK(std::regex_match(line, std::regex(time + R"( info worker 100%v: first\\nsecond \\x1b\[31m)")));
  REQUIRE(std::getline(lines, line));
  CHECK(std::regex_match(line, std::regex(time + " error worker 100%v: bad")));
  CHECK_FALSE(std::getline(lines, line));
  log::set_sink(nullptr, log::level::info);
}

TEST_CASE("a log is rotated at its size, and no more files than asked for are kept") {
  const temporary_folder t;
  const std::string file = t.path + "/x.log";
  REQUIRE(runtime::open_log({.role = "r", .file = file, .bytes_max = 2000, .files = 3}).has_value());
  for (int i = 0; i < 200; ++i) log::info("line " + std::to_string(i));
  log::set_sink(nullptr, log::level::info);
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(t.path)) {
    ++files;
    CHECK(entry.file_size() <= 2000);
  }
  CHECK(files == 3);
  CHECK(text_of(file).find("line 199") != std::string::npos);
}

TEST_CASE("a log that cannot be written is an error that names it") {
  const auto refused = runtime::open_log({.role = "r", .file = "/proc/nowhere/x.log"});
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.failure().message.find("/proc/nowhere/x.log") != std::string::npos);
  CHECK(runtime::parse_level("warn").value() == log::level::warn);
  CHECK_FALSE(runtime::parse_level("loud").has_value());
}

TEST_CASE("incarnations are never none and never the same twice") {
  std::set<incarnation> seen;
  for (int i = 0; i < 1000; ++i) {
    const auto who = runtime::random_incarnation();
    CHECK_FALSE(who.is_none());
    CHECK(seen.insert(who).second);
  }
}
