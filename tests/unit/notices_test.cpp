#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <string_view>
#include <vector>

#include "actors/base/log.hpp"
#include "tests/unit/tiny_http.hpp"
#include "worker/node/notice_watch.hpp"

using namespace perdura;
using namespace perdura::worker::node;
using namespace std::chrono_literals;
using test::answered;
using test::asked;
using test::tiny_http;

namespace {

// 2026-03-01T12:00:00Z, a Sunday.
const wall_time noon = std::chrono::system_clock::from_time_t(1772366400);

preemption_config config_for(const std::string& metadata, const std::string& url) {
  preemption_config c;
  c.metadata = metadata;
  c.metadata_url = url;
  c.grace = 30s;
  c.poll = 10ms;
  return c;
}

// Asks a service that answers as `handle` says, once for each of `times`; the last answer.
struct dialogue {
  dialogue(const std::string& metadata, tiny_http::handler handle, const std::string& path = "")
      : server(std::move(handle)), service(make_metadata_service(config_for(metadata, server.url() + path))) {
    REQUIRE(service);
  }
  result<std::optional<notice>> ask() {
    return service->ask([this](const http_request& r) { return client.send(r); }, noon);
  }
  std::optional<notice> must_answer() {
    auto answer = ask();
    REQUIRE_MESSAGE(answer.has_value(), (answer ? "" : answer.failure().message));
    return *answer;
  }
  tiny_http server;
  http_client client;
  std::unique_ptr<metadata_service> service;
};

struct scratch_folder {
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "perdura-notices-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~scratch_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

std::mutex log_mutex;
std::vector<std::string> logged;
void keep_log(log::level, std::string_view text) {
  const std::lock_guard lock(log_mutex);
  logged.emplace_back(text);
}
std::size_t logged_with(const std::string& part) {
  const std::lock_guard lock(log_mutex);
  return static_cast<std::size_t>(std::count_if(logged.begin(), logged.end(), [&](const std::string& line) {
    return line.find(part) != std::string::npos;
  }));
}

template <class Condition>
void eventually(const Condition& is_so) {
  const auto end = std::chrono::steady_clock::now() + 30s;
  while (!is_so()) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    std::this_thread::sleep_for(2ms);
  }
}

// What a watcher has found.
struct found {
  std::function<void(const notice&)> sink() {
    return [this](const notice& n) {
      const std::lock_guard lock(mutex);
      all.push_back(n);
    };
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return all.size();
  }
  std::mutex mutex;
  std::vector<notice> all;
};

}  // namespace

// ---- times

TEST_CASE("a deadline is seconds, a time of either kind, or nothing") {
  const auto left = [](const std::string& text) {
    const auto d = parse_deadline(text, noon);
    REQUIRE_MESSAGE(d.has_value(), text);
    return *d;
  };
  CHECK(left("") == std::nullopt);
  CHECK(left(" \n") == std::nullopt);
  CHECK(left("90\n") == 90s);
  CHECK(left("0.5") == 500ms);
  CHECK(left("2026-03-01T12:02:00Z") == 120s);
  CHECK(left("2026-03-01T12:02:00.750Z") == 120s);
  CHECK(left("2026-03-01T13:32:00+01:30") == 120s);
  CHECK(left("2026-03-01T11:02:00-01:00") == 120s);
  CHECK(left("Sun, 01 Mar 2026 12:01:00 GMT") == 60s);
}

TEST_CASE("a deadline that has passed leaves nothing, and one far away a day") {
  CHECK(**parse_deadline("2026-03-01T11:00:00Z", noon) == 0ms);
  CHECK(**parse_deadline("2027-03-01T11:00:00Z", noon) == notice_most);
  CHECK(**parse_deadline("1e300", noon) == notice_most);
}

TEST_CASE("what is no deadline is refused with what one looks like") {
  for (const char* text : {"soon", "-5", "nan", "2026-03-01", "2026-03-01T12:00:00", "2026-03-01T12:00:00.Z",
                           "2026-03-01T12:00:00+1", "2026-03-01T12:00:00Zx", "12 s"}) {
    const auto d = parse_deadline(text, noon);
    REQUIRE_FALSE_MESSAGE(d.has_value(), text);
    CHECK(d.failure().message.find("2026-03-01T12:00:00Z") != std::string::npos);
    CHECK(d.failure().message.find("seconds") != std::string::npos);
  }
}

// ---- the file

TEST_CASE("a notice file says that the machine goes, and may say when") {
  const scratch_folder folder;
  const auto path = (folder.path / "go").string();
  const auto read = [&] {
    auto n = read_notice_file(path, 30s, noon);
    REQUIRE(n.has_value());
    return *n;
  };
  CHECK_FALSE(read().has_value());
  std::ofstream(path).flush();
  CHECK(read()->left == 30s);
  CHECK(read()->why.find(path) != std::string::npos);
  std::ofstream(path) << "90\n";
  CHECK(read()->left == 90s);
  std::ofstream(path) << "2026-03-01T12:00:10Z\n";
  CHECK(read()->left == 10s);
  std::ofstream(path) << "maintenance\n";
  CHECK(read()->left == 30s);
}

TEST_CASE("a notice file in a folder that is not there, or not a folder, is none") {
  CHECK_FALSE(read_notice_file("/nowhere/at/all", 30s, noon).value().has_value());
  CHECK_FALSE(read_notice_file("/dev/null/go", 30s, noon).value().has_value());
}

TEST_CASE("a folder in place of the notice file is an error, no notice") {
  const scratch_folder folder;
  const auto n = read_notice_file(folder.path.string(), 30s, noon);
  REQUIRE_FALSE(n.has_value());
  CHECK(n.failure().code == errc::io);
}

// ---- aws

TEST_CASE("aws: a token first, then 404 until there is an action with a time") {
  std::vector<std::string> paths;
  std::atomic<bool> is_there = false;
  dialogue d("aws", [&](const asked& a) -> answered {
    paths.push_back(a.method + " " + a.path);
    if (a.method == "PUT") {
      CHECK(a.headers.at("x-aws-ec2-metadata-token-ttl-seconds") == "21600");
      return {200, "AQAE-token=="};
    }
    CHECK(a.headers.at("x-aws-ec2-metadata-token") == "AQAE-token==");
    if (!is_there) return {404, "<html>not found</html>"};
    return {200, R"({"action": "terminate", "time": "2026-03-01T12:02:00Z"})"};
  });
  CHECK_FALSE(d.must_answer().has_value());
  CHECK_FALSE(d.must_answer().has_value());
  is_there = true;
  const auto n = d.must_answer();
  REQUIRE(n.has_value());
  CHECK(n->left == 120s);
  CHECK(n->why == "the metadata service (aws) says terminate at 2026-03-01T12:02:00Z");
  CHECK(paths == std::vector<std::string>{"PUT /latest/api/token",
                                          "GET /latest/meta-data/spot/instance-action",
                                          "GET /latest/meta-data/spot/instance-action",
                                          "GET /latest/meta-data/spot/instance-action"});
}

TEST_CASE("aws: a token that has expired is replaced, one that was never good is an error") {
  int tokens = 0, gets = 0;
  dialogue d("aws", [&](const asked& a) -> answered {
    if (a.method == "PUT") return {200, "token" + std::to_string(++tokens)};
    return {++gets == 1 ? 404 : 401, ""};
  });
  CHECK_FALSE(d.must_answer().has_value());
  CHECK_FALSE(d.must_answer().has_value());  // 401: has expired
  const auto again = d.ask();
  CHECK(tokens == 2);
  REQUIRE_FALSE(again.has_value());
  CHECK(again.failure().message.find("401") != std::string::npos);
}

TEST_CASE("aws: an action without a time that can be read leaves the usual grace") {
  dialogue d("aws", [](const asked& a) -> answered {
    return {200, a.method == "PUT" ? "token" : R"({"action": "stop", "time": "soon"})"};
  });
  CHECK(d.must_answer()->left == 30s);
}

TEST_CASE("aws: rubbish is no notice") {
  for (const char* body : {"", "<html></html>", "[]", "{}", R"({"action": 7})", "{\"action\""}) {
    dialogue d("aws", [&](const asked& a) -> answered { return {200, a.method == "PUT" ? "token" : body}; });
    const auto answer = d.ask();
    REQUIRE_FALSE_MESSAGE(answer.has_value(), body);
    CHECK(answer.failure().code == errc::corrupt);
  }
  dialogue page("aws", [&](const asked&) -> answered { return {200, "<html>\r\nX: y</html>"}; });
  CHECK(page.ask().failure().message.find("no token") != std::string::npos);
}

// ---- gcp

TEST_CASE("gcp: FALSE first, then a question that stays open until it is TRUE") {
  std::vector<std::string> paths;
  dialogue d("gcp", [&](const asked& a) -> answered {
    CHECK(a.headers.at("metadata-flavor") == "Google");
    paths.push_back(a.path);
    if (paths.size() < 3) return {200, "FALSE\n", "ETag: 411261ca\r\n"};
    return {200, "TRUE", "ETag: 5\r\n"};
  });
  CHECK_FALSE(d.must_answer().has_value());
  CHECK_FALSE(d.must_answer().has_value());
  const auto n = d.must_answer();
  REQUIRE(n.has_value());
  CHECK(n->left == 30s);
  const std::string path = "/computeMetadata/v1/instance/preempted";
  const auto open = path + "?wait_for_change=true&timeout_sec=10&last_etag=411261ca";
  CHECK(paths == std::vector<std::string>{path, open, open});
}

TEST_CASE("gcp: an etag that would change the question is not used") {
  std::string last;
  dialogue d("gcp", [&](const asked& a) -> answered {
    last = a.path;
    return {200, "FALSE", "ETag: a&b=c d\r\n"};
  });
  CHECK_FALSE(d.must_answer().has_value());
  CHECK_FALSE(d.must_answer().has_value());
  CHECK(last.find('?') == std::string::npos);
}

TEST_CASE("gcp: rubbish is no notice") {
  dialogue words("gcp", [](const asked&) -> answered { return {200, "maybe"}; });
  CHECK(words.ask().failure().code == errc::corrupt);
  dialogue status("gcp", [](const asked&) -> answered { return {500, "TRUE"}; });
  CHECK(status.ask().failure().message.find("500") != std::string::npos);
}

// ---- azure

namespace {

std::string azure_events(const std::string& events) {
  return R"({"DocumentIncarnation": 2, "Events": [)" + events + "]}";
}

std::string azure_event(const std::string& type, const std::string& resource, const std::string& not_before) {
  return R"({"EventId": "A1", "EventType": ")" + type +
         R"(", "ResourceType": "VirtualMachine", "Resources": [")" + resource +
         R"("], "EventStatus": "Scheduled", "NotBefore": ")" + not_before + "\"}";
}

tiny_http::handler azure(const std::string& events, int name_status = 200) {
  return [=](const asked& a) -> answered {
    CHECK(a.headers.at("metadata") == "true");
    if (a.path == "/metadata/instance/compute/name?api-version=2021-02-01&format=text")
      return {name_status, "box_0"};
    CHECK(a.path == "/metadata/scheduledevents?api-version=2020-07-01");
    return {200, azure_events(events)};
  };
}

}  // namespace

TEST_CASE("azure: no event, and events of other kinds or other machines, are no notice") {
  const std::string time = "Sun, 01 Mar 2026 12:00:45 GMT";
  CHECK_FALSE(dialogue("azure", azure("")).must_answer().has_value());
  CHECK_FALSE(dialogue("azure", azure(azure_event("Freeze", "box_0", time))).must_answer().has_value());
  CHECK_FALSE(dialogue("azure", azure(azure_event("Preempt", "box_1", time))).must_answer().has_value());
}

TEST_CASE("azure: a Preempt of this machine is a notice until its NotBefore") {
  const auto other = azure_event("Preempt", "box_1", "Sun, 01 Mar 2026 12:00:05 GMT");
  const auto ours = azure_event("Preempt", "box_0", "Sun, 01 Mar 2026 12:00:45 GMT");
  const auto n = dialogue("azure", azure(other + ", " + ours)).must_answer();
  REQUIRE(n.has_value());
  CHECK(n->left == 45s);
  CHECK(n->why.find("Preempt") != std::string::npos);
}

TEST_CASE("azure: without a NotBefore the usual grace is left, and without a name all events are ours") {
  CHECK(dialogue("azure", azure(azure_event("Preempt", "box_0", ""))).must_answer()->left == 30s);
  CHECK(dialogue("azure", azure(azure_event("Terminate", "box_9", ""), 404)).must_answer().has_value());
}

TEST_CASE("azure: rubbish is no notice") {
  for (const char* body : {"", "[]", "{}", R"({"Events": "none"})", R"({"Events": [1]})"}) {
    dialogue d("azure", [&](const asked&) -> answered { return {200, body}; });
    CHECK_MESSAGE(d.ask().failure().code == errc::corrupt, body);
  }
}

// ---- any address

TEST_CASE("url: 404 and 204 are none, 200 is a notice whose body may say when") {
  int status = 404;
  std::string body, path;
  dialogue d(
      "url",
      [&](const asked& a) -> answered {
        path = a.path;
        return {status, body};
      },
      "/going?who=me");
  CHECK_FALSE(d.must_answer().has_value());
  CHECK(path == "/going?who=me");
  status = 204;
  CHECK_FALSE(d.must_answer().has_value());
  status = 503;
  CHECK_FALSE(d.ask().has_value());
  status = 200;
  CHECK(d.must_answer()->left == 30s);
  body = "5";
  CHECK(d.must_answer()->left == 5s);
  body = "bye";
  CHECK(d.must_answer()->left == 30s);
}

TEST_CASE("a redirection is not followed, and a reply without end is refused") {
  dialogue moved("url", [](const asked&) -> answered { return {302, "", "Location: /other\r\n"}; });
  CHECK(moved.ask().failure().message.find("302") != std::string::npos);
  dialogue longer("url", [](const asked&) -> answered {
    return {200, std::string(http_body_bytes_max + 1, 'x')};
  });
  CHECK(longer.ask().failure().code == errc::exhausted);
}

// ---- watching

TEST_CASE("a watcher that is asked for nothing starts no thread") {
  CHECK(make_metadata_service({}) == nullptr);
  notice_watch watch({}, [](const notice&) { FAIL("nobody gave notice"); });
}

TEST_CASE("a watched file gives notice once, when it appears") {
  const scratch_folder folder;
  auto config = config_for("none", "");
  config.notice_file = (folder.path / "go").string();
  found f;
  notice_watch watch(config, f.sink());
  std::this_thread::sleep_for(30ms);
  CHECK(f.count() == 0);
  std::ofstream(folder.path / "new") << "7";
  std::filesystem::rename(folder.path / "new", folder.path / "go");
  eventually([&] { return f.count() == 1; });
  CHECK(f.all.front().left == 7s);
}

TEST_CASE("a service that is down, or answers rubbish, is logged once until it answers, and is no notice") {
  log::set_sink(keep_log, log::level::info);
  std::atomic<int> asked_so_far = 0;
  std::atomic<int> status = 500;
  found f;
  {
    tiny_http server([&](const asked&) -> answered {
      ++asked_so_far;
      return {status, ""};
    });
    notice_watch watch(config_for("url", server.url()), f.sink());
    eventually([&] { return asked_so_far >= 3; });
    CHECK(logged_with("500") == 1);
    status = 404;
    eventually([&] { return logged_with("answers again") == 1; });
    CHECK(f.count() == 0);
    status = 200;
    eventually([&] { return f.count() == 1; });
  }
  // Nobody listens any more.
  std::string gone;
  {
    gone = tiny_http([](const asked&) -> answered { return {}; }).url();
  }
  notice_watch watch(config_for("url", gone), f.sink());
  eventually([&] { return logged_with(gone) == 1; });
  std::this_thread::sleep_for(50ms);
  CHECK(logged_with(gone) == 1);
  CHECK(f.count() == 1);
}

TEST_CASE("a watcher ends at once though a service keeps it waiting") {
  std::atomic<bool> is_asked = false;
  std::atomic<bool> may_answer = false;
  tiny_http server([&](const asked&) -> answered {
    is_asked = true;
    for (int ms = 0; ms < 30000 && !may_answer; ++ms) std::this_thread::sleep_for(1ms);
    return {200, "TRUE"};
  });
  auto config = config_for("gcp", server.url());
  config.request_timeout = 1h;
  found f;
  {
    notice_watch watch(config, f.sink());
    eventually([&] { return is_asked.load(); });
  }
  CHECK(f.count() == 0);
  may_answer = true;
}
