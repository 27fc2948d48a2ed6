#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "actors/base/version.hpp"
#include "coordinator/admin/server.hpp"
#include "coordinator/console/commands.hpp"
#include "coordinator/console/doctor.hpp"
#include "coordinator/console/launch.hpp"
#include "coordinator/console/logs.hpp"
#include "coordinator/console/program.hpp"
#include "coordinator/console/progress.hpp"
#include "coordinator/console/repl.hpp"
#include "coordinator/console/tables.hpp"
#include "tests/unit/console_fixture.hpp"
#include "tests/unit/fake_admin_service.hpp"

using namespace perdura;
using namespace perdura::console;
namespace json = boost::json;

namespace {

struct fixture {
  fixture() {
    admin::server_options options;
    options.port = 0;
    auto started = admin::server::start(service, options);
    REQUIRE(started);
    server = std::move(*started);
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(server->port()); }
  ended run(std::vector<std::string> words, const std::string& input = "") {
    words.insert(words.begin(), {"--admin", address()});
    return running(folder.path, words, input).wait();
  }
  json::value run_json(std::vector<std::string> words) {
    words.emplace_back("--json");
    const auto done = run(words);
    CHECK_MESSAGE(done.code == 0, done.err);
    return json::parse(done.out);
  }

  temporary_folder folder;
  admin::fake_admin_service service;
  std::unique_ptr<admin::server> server;
};

table sample_table() {
  return {{{"name", "NAME"}, {"state", "STATE", unit::state}, {"bytes", "SIZE", unit::bytes}, {"hidden", ""}},
          {{"a", "up", 512, 1}, {"longer", "dead", 3u << 20, 2}},
          "none"};
}

}  // namespace

TEST_CASE("a table is aligned, numbers to the right, and shows no hidden columns") {
  std::ostringstream out;
  renderer(out, out, {}).show(sample_table());
  CHECK(out.str() ==
        "NAME    STATE     SIZE\n"
        "a       up       512 B\n"
        "longer  dead   3.0 MiB\n");
}

TEST_CASE("a table as JSON has every column under its key, in plain units") {
  std::ostringstream out;
  renderer(out, out, {.json = true}).show(sample_table());
  const auto rows = json::parse(out.str()).as_array();
  REQUIRE(rows.size() == 2);
  CHECK(rows[1].at("bytes").as_int64() == 3 << 20);
  CHECK(rows[1].at("hidden").as_int64() == 2);
}

TEST_CASE("states are coloured only when asked, and alignment stays") {
  std::ostringstream out;
  renderer(out, out, {.colour = true}).show(sample_table());
  CHECK(out.str().find("\033[32mup   \033[0m    512 B") != std::string::npos);
  CHECK(out.str().find("\033[31mdead \033[0m") != std::string::npos);
}

TEST_CASE("text from other machines cannot control the terminal") {
  CHECK(to_text(value("\033[2Jx\ny"), unit::text) == "?[2Jx?y");
}

TEST_CASE("values are shown in units that people read") {
  CHECK(to_text(value(0), unit::bytes) == "0 B");
  CHECK(to_text(value(1536), unit::bytes) == "1.5 KiB");
  CHECK(to_text(value(12.34), unit::milliseconds) == "12.3 ms");
  CHECK(to_text(value(1500), unit::milliseconds) == "1.5 s");
  CHECK(to_text(value(3723000), unit::milliseconds) == "1 h 02 min");
  CHECK(to_text(value(0.25123), unit::number) == "0.2512");
  CHECK(to_text(number(std::numeric_limits<double>::quiet_NaN()), unit::number) == "-");
  CHECK(to_text(value(0), unit::date) == "-");
}

TEST_CASE("a line is split into words as a shell does") {
  CHECK(*split_words("  kill  node-1/0 ") == std::vector<std::string>{"kill", "node-1/0"});
  CHECK(*split_words("submit 'a b'.toml \"\"") == std::vector<std::string>{"submit", "a b.toml", ""});
  CHECK_FALSE(split_words("submit 'a"));
}

TEST_CASE("addresses are host and port") {
  CHECK(*parse_endpoint("127.0.0.1:7401") == endpoint{"127.0.0.1", 7401});
  CHECK(*parse_endpoint("[::1]:80") == endpoint{"::1", 80});
  for (const char* wrong : {"", "7401", ":7401", "host:", "host:0", "host:65536", "host:7x"})
    CHECK_FALSE(parse_endpoint(wrong));
}

TEST_CASE("the progress line has step, loss, rate, workers, era and time left, and fits") {
  const auto job = admin::fake_admin_service().job();
  const auto line = progress_line(job, 3, 125s, 200);
  CHECK(line ==
        "[##............................] 42/600  loss 0.2510  384 images/s  3 workers  era 2.17  2:05 left");
  CHECK(progress_line(job, 3, 125s, 40).size() == 40);
  auto waiting = job;
  waiting.state = admin::job_state::waiting;
  waiting.why = "2 workers are missing";
  CHECK(progress_line(waiting, 1, 0s, 200).find("waiting: 2 workers are missing") != std::string::npos);
}

TEST_CASE("without a terminal progress is plain lines, not one for each look") {
  std::ostringstream out;
  {
    progress_view view(out, false);
    auto job = admin::fake_admin_service().job();
    for (int i = 0; i < 50; ++i) view.show(job, 3);
    job.state = admin::job_state::finished;
    view.show(job, 3);
  }
  const auto text = out.str();
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.find('\r') == std::string::npos);
}

TEST_CASE("every read command prints a table, and valid JSON") {
  fixture f;
  f.service.add_event("worker_dead", "node-1/0", "its link broke");
  const auto status = f.run_json({"status"});
  CHECK(status.at("cluster").at("era").as_string() == "2.17");
  CHECK(status.at("jobs").as_array().size() == 1);
  CHECK(f.run_json({"nodes"}).at(0).at("state").as_string() == "up");
  CHECK(f.run_json({"workers"}).as_array().size() == 3);
  CHECK(f.run_json({"plan"}).at(1).at("blocks").at(0).as_string() == "[8,12)");
  CHECK(f.run_json({"ckpt", "list"}).at(0).at("state").as_string() == "committed");
  const auto events = f.run_json({"events"});
  CHECK(events.at(0).at("reason").as_string() == "its link broke");
  CHECK(events.at(0).at("fields").at("slots").as_string() == "4");

  const auto job = f.run_json({"job", "fashion", "--steps"});
  CHECK(job.at("job").at("last_checkpoint").as_int64() == 40);
  CHECK(job.at("recoveries").at(0).at("committed_ms").as_double() == 51.5);
  CHECK(job.at("recoveries").at(1).at("committed_ms").is_null());
  CHECK(job.at("steps").as_array().size() == 43);
  CHECK(job.at("steps").at(40).at("loss").is_null());
  CHECK(f.run_json({"job", "--steps", "41"}).at("steps").as_array().size() == 2);

  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"status"},
                                                                                     {"nodes"},
                                                                                     {"workers"},
                                                                                     {"job"},
                                                                                     {"job", "j1"},
                                                                                     {"plan"},
                                                                                     {"events"},
                                                                                     {"ckpt", "list"}}) {
    const auto done = f.run(words);
    CHECK_MESSAGE(done.code == 0, words[0]);
    CHECK_MESSAGE(done.out.size() > 40, words[0]);
    CHECK(done.out.find('\033') == std::string::npos);
  }
}

TEST_CASE("writes say what happens now") {
  fixture f;
  CHECK(f.run({"pause"}).out == "paused after step 42\n");
  CHECK(f.run({"resume", "j1"}).code == 0);
  CHECK(f.run({"drain", "node-1"}).out == "node-1 leaves after step 43\n");
  CHECK(f.run({"drain", "node-1", "--deadline", "2m"}).out ==
        "node-1 leaves after step 43, within 120000 ms\n");
  CHECK(f.run({"kill", "node-1/0"}).code == 0);
  CHECK(f.run({"ckpt", "now"}).code == 0);
  CHECK(f.run_json({"cancel"}).at("note").as_string() == "cancelled");
  CHECK(f.run({"shutdown"}).code == 0);
  CHECK(f.service.is_shut_down);
}

TEST_CASE("submit sends the file's text, from standard input too") {
  fixture f;
  write_text(f.folder.path / "job.toml", "name = \"x\"\n");
  CHECK(f.run({"submit", (f.folder.path / "job.toml").string()}).code == 0);
  CHECK(f.service.submitted_text == "name = \"x\"\n");
  CHECK(f.run({"submit", "-"}, "name = \"y\"\n").code == 0);
  CHECK(f.service.submitted_text == "name = \"y\"\n");
}

TEST_CASE("a refused job shows every error, and ends with 1") {
  fixture f;
  const auto done = f.run({"submit", "-"}, "steps = -1\n");
  CHECK(done.code == 1);
  CHECK(done.err.find("-:3: steps: -1 is not allowed; from 1 to 1000000000\n-:4: unknown key\n") !=
        std::string::npos);
  const auto as_json = f.run({"submit", "-", "--json"}, "steps = -1\n");
  CHECK(json::parse(as_json.out).at("error").at("code").as_string() == "invalid argument");
}

TEST_CASE("what is refused ends with 1 and the reason") {
  fixture f;
  const auto done = f.run({"kill", "node-9/0"});
  CHECK(done.code == 1);
  CHECK(done.out.empty());
  CHECK(done.err == "perdura: no worker is named node-9/0\n");
  CHECK(f.run({"job", "nothing"}).code == 1);
  CHECK(f.run({"submit", "/nonexistent/job.toml"}).code == 1);
}

TEST_CASE("a wrong command line ends with 2") {
  fixture f;
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{},
                                                                                     {"frobnicate"},
                                                                                     {"kill"},
                                                                                     {"ckpt"},
                                                                                     {"status", "extra"},
                                                                                     {"events", "-n", "0"},
                                                                                     {"job", "--stepz"}})
    CHECK_MESSAGE(f.run(words).code == 2, (words.empty() ? "" : words[0]));
  CHECK(running(f.folder.path, {"--admin", "nowhere", "status"}).wait().code == 2);
}

TEST_CASE("no coordinator: exit code 3, and how to start one") {
  fixture f;
  const auto address = f.address();
  f.server.reset();
  const auto done = running(f.folder.path, {"status", "--admin", address}).wait();
  CHECK(done.code == 3);
  CHECK(done.err.find("perdura up") != std::string::npos);
}

TEST_CASE("following shows events as they happen, and ends with the coordinator") {
  fixture f;
  f.service.add_event("first", "a");
  running follower(f.folder.path, {"--admin", f.address(), "events", "--follow"});
  CHECK(eventually([&] { return follower.out().find("first") != std::string::npos; }));
  f.service.add_event("second", "b");
  f.server->events_grew();
  CHECK(eventually([&] { return follower.out().find("second") != std::string::npos; }));
  f.server.reset();
  CHECK(follower.wait().code == 3);
}

TEST_CASE("watch ends with the job, and its exit code tells how") {
  fixture f;
  auto job = f.service.job();
  running watcher(f.folder.path, {"--admin", f.address(), "watch"});
  CHECK(eventually([&] { return watcher.out().find("42/600") != std::string::npos; }));
  job.state = admin::job_state::finished;
  job.final_hash = "abc123";
  f.service.set_job(job);
  const auto done = watcher.wait();
  CHECK(done.code == 0);
  CHECK(done.out.find("abc123") != std::string::npos);
  job.state = admin::job_state::failed;
  job.why = "the data set is missing";
  f.service.set_job(job);
  CHECK(f.run({"watch", "j1"}).code == 1);
}

TEST_CASE("the console runs commands from a script, and ends with the last failure's code") {
  fixture f;
  const auto good = f.run({"console"}, "# a comment\nnodes\n\npause j1\nquit\nnever read\n");
  CHECK(good.code == 0);
  CHECK(good.out.find("node-2") != std::string::npos);
  CHECK(good.out.find("paused after step 42") != std::string::npos);
  const auto bad = running(f.folder.path, {"console", f.address()}, "kill nobody\nhelp\n'open\n").wait();
  CHECK(bad.code == 2);
  CHECK(bad.out.find("ckpt") != std::string::npos);
}

TEST_CASE("completion knows commands, jobs and workers") {
  fixture f;
  session to(*parse_endpoint(f.address()));
  auto has = [&](const std::vector<std::string>& before, const std::string& word) {
    const auto words = completions(to, before);
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  CHECK(has({}, "status"));
  CHECK(has({"ckpt"}, "now"));
  CHECK(has({"pause"}, "fashion"));
  CHECK(has({"kill"}, "node-1/1"));
  CHECK_FALSE(has({"kill"}, "node-2"));
  CHECK(has({"drain"}, "node-2"));
  CHECK(completions(to, {"submit"}).empty());
}

TEST_CASE("logs shows the last lines of the chosen files, and what is added") {
  temporary_folder folder;
  write_text(folder.path / "coordinator.log", "c1\nc2\nc3\nhalf");
  write_text(folder.path / "coordinator.1.log", "old\n");
  write_text(folder.path / "node-1.log", "n1\n");
  write_text(folder.path / "worker-node-1-0.log", "w1\033[2J\n");
  std::ostringstream out;
  logs_options options{.folder = folder.path, .kind = "coordinator", .lines = 2};
  auto never = [] { return true; };
  CHECK(show_logs(options, out, out, never) == exit_ok);
  CHECK(out.str() == "c2\nc3\n");
  CHECK(log_files({.folder = folder.path}).size() == 3);
  CHECK(log_files({.folder = folder.path, .kind = "worker", .name = "node-1/0"}).size() == 1);
  CHECK(log_files({.folder = folder.path, .kind = "node", .name = "node-1"}).size() == 1);

  out.str("");
  options.follow = true;
  int looks = 0;
  CHECK(show_logs(options, out, out, [&] {
          if (looks == 0) std::ofstream(folder.path / "coordinator.log", std::ios::app) << " line\nc5\n";
          return ++looks > 1;
        }) == exit_ok);
  CHECK(out.str() == "c2\nc3\nhalf line\nc5\n");

  std::ostringstream err;
  CHECK(show_logs({.folder = folder.path, .kind = "node", .name = "x"}, out, err, never) == exit_failed);
  CHECK(err.str().find(folder.path.string()) != std::string::npos);
}

TEST_CASE("doctor tells a free port, a coordinator's and a stranger's apart") {
  fixture f;
  const auto port = f.server->port();
  const auto ours = check_port("admin port", "127.0.0.1", port, true);
  CHECK(ours.is == health::ok);
  CHECK(ours.found.find("a coordinator listens") != std::string::npos);
  CHECK(check_port("port", "127.0.0.1", port, false).is == health::warn);
  CHECK(check_port("port", "not an address", port, false).is == health::fail);
  f.server.reset();
  CHECK(check_port("admin port", "127.0.0.1", port, true).found.find("free") == 0);
}

TEST_CASE("doctor finds what is wrong with folders, data sets and programs") {
  temporary_folder folder;
  CHECK(check_folder("data folder", (folder.path / "not/yet/made").string(), 0).is == health::ok);
  CHECK(check_folder("data folder", folder.path.string(), std::uint64_t{1} << 62).is == health::warn);
  write_text(folder.path / "file", "");
  CHECK(check_folder("data folder", (folder.path / "file/below").string(), 0).is == health::fail);
  CHECK(check_folder("data folder", "", 0).is == health::fail);
  CHECK(check_data_set(folder.path.string()).is == health::warn);
  CHECK(check_program("perdura-no-such-program").is == health::fail);
  CHECK(check_settings(error{errc::invalid_argument, "cluster.toml:3: port: 99999"}).is == health::fail);
}

TEST_CASE("the version names build, protocol and checkpoint format") {
  temporary_folder folder;
  const auto done = running(folder.path, {"--version"}).wait();
  CHECK(done.code == 0);
  CHECK(done.out == version_text("perdura") + "\n");
  const auto protocol = "protocol " + std::to_string(protocol_version) + ", checkpoint format";
  CHECK(version_text("perdura").find(protocol) != std::string::npos);
}

TEST_CASE("docs/configuration.md holds every key as the program knows it") {
  temporary_folder folder;
  const auto reference = running(folder.path, {"reference", "configuration"}).wait().out;
  CHECK(reference.find("lease_ms") != std::string::npos);
  CHECK_MESSAGE(text_of(PERDURA_SOURCE "/docs/configuration.md").ends_with(reference),
                "replace what follows the first heading by the output of: perdura reference configuration");
}

TEST_CASE("docs/cli.md holds the reference as the program prints it") {
  CHECK_MESSAGE(text_of(PERDURA_SOURCE "/docs/cli.md").ends_with(reference_text()),
                "replace what follows \"## Commands\" by the output of: perdura reference");
}

namespace {

// A folder with a copy of perdura, and scripts in place of the programs that it starts.
struct fake_install : fixture {
  fake_install() {
    for (const char* name : {"work", "log"}) fs::create_directories(folder.path / name);
    bin = folder.path / "bin";
    fs::create_directories(bin);
    fs::copy_file(PERDURA_PROGRAM, bin / "perdura");
    // Ends when the test says so, or when it is told to; leaves a child that ignores SIGTERM.
    const std::string until_stopped = "echo $$ >>" + (folder.path / "pids").string() +
                                      "\n(trap '' TERM; exec sleep 300) &\necho $! >>" +
                                      (folder.path / "orphans").string() + "\nwhile [ ! -e " +
                                      (folder.path / "stop").string() + " ]; do sleep 0.05; done\n";
    write_text(bin / "perdura-coordinator",
               "#!/bin/sh\necho \"$@\" >" + (folder.path / "words").string() +
                   "\necho ready port=1 admin=" + std::to_string(server->port()) + "\n" + until_stopped);
    write_text(bin / "perdura-node",
               "#!/bin/sh\necho \"$@\" >>" + (folder.path / "words").string() + "\n" + until_stopped);
    write_text(folder.path / "job.toml", "name = \"x\"\n");
    service.on_shutdown = [this] { write_text(folder.path / "stop", ""); };
  }
  ~fake_install() {
    for (pid_t pid : noted("orphans")) kill(pid, SIGKILL);
  }
  running up(std::vector<std::string> words) {
    words.insert(words.begin(),
                 {"up", "--workers", "3", "--nodes", "2", "--log", (folder.path / "log").string()});
    return running(folder.path / "work", words, "", (bin / "perdura").string());
  }
  std::vector<pid_t> noted(const char* file) const {
    std::ifstream in(folder.path / file);
    return {std::istream_iterator<pid_t>(in), {}};
  }
  // How many of the processes that were started still live.
  int count_left(const char* file) const {
    const auto pids = noted(file);
    return static_cast<int>(
        std::count_if(pids.begin(), pids.end(), [](pid_t pid) { return kill(pid, 0) == 0; }));
  }
  int count_left() const { return count_left("pids") + count_left("orphans"); }
  fs::path bin;
};

}  // namespace

TEST_CASE("perdura X runs perdura-X beside it") {
  fake_install f;
  write_text(f.bin / "perdura-worker", "#!/bin/sh\necho worker \"$@\"\nexit 7\n");
  write_text(f.bin / "perdura-extra", "#!/bin/sh\necho extra \"$@\"\n");
  auto run = [&](const std::vector<std::string>& words) {
    return running(f.folder.path / "work", words, "", (f.bin / "perdura").string()).wait();
  };
  const auto generated = run({"generate", "--class", "7", "--json"});
  CHECK(generated.out == "worker --once --class 7 --json\n");
  CHECK(generated.code == 7);
  CHECK(run({"extra", "--help"}).out == "extra --help\n");
  fs::remove(f.bin / "perdura-worker");
}

TEST_CASE("up runs a job to its end and leaves no process") {
  fake_install f;
  auto up = f.up({"--job", (f.folder.path / "job.toml").string(), "--port", "0", "--admin-port", "0"});
  CHECK(eventually([&] { return up.out().find("42/600") != std::string::npos; }));
  CHECK(f.service.submitted_text == "name = \"x\"\n");
  CHECK(eventually([&] { return f.count_left() == 6; }));
  auto job = f.service.job();
  job.state = admin::job_state::finished;
  f.service.set_job(job);
  const auto done = up.wait();
  CHECK_MESSAGE(done.code == 0, done.err);
  CHECK(f.service.is_shut_down);
  CHECK(f.count_left() == 0);
  const auto words = text_of(f.folder.path / "words");
  CHECK(words.find("--port 0 --admin-port 0") != std::string::npos);
  CHECK(words.find("--join 127.0.0.1:1 --name node-1 --devices 2") != std::string::npos);
  CHECK(words.find("--join 127.0.0.1:1 --name node-2 --devices 1") != std::string::npos);
}

TEST_CASE("Ctrl-C ends up and everything that it started") {
  fake_install f;
  auto up = f.up({"--job", (f.folder.path / "job.toml").string()});
  CHECK(eventually([&] { return up.out().find("42/600") != std::string::npos; }));
  up.signal(SIGINT);
  CHECK(up.wait().code == 130);
  CHECK(f.count_left() == 0);
}

TEST_CASE("without a job Ctrl-C is how up ends") {
  fake_install f;
  auto up = f.up({});
  CHECK(eventually([&] { return up.out().find("42/600") != std::string::npos; }));
  up.signal(SIGTERM);
  CHECK(up.wait().code == 0);
  CHECK(f.count_left() == 0);
}

TEST_CASE("when up is killed its processes die with it") {
  fake_install f;
  {
    auto up = f.up({});
    CHECK(eventually([&] { return up.out().find("42/600") != std::string::npos && f.count_left() == 6; }));
  }
  // What those leave behind is theirs to end: a node has the same arrangement with its workers.
  CHECK(eventually([&] { return f.count_left("pids") == 0; }));
}

TEST_CASE("a coordinator that does not start is reported with its output") {
  fake_install f;
  write_text(f.bin / "perdura-coordinator", "#!/bin/sh\necho the data folder is locked >&2\nexit 1\n");
  const auto done = f.up({}).wait();
  CHECK(done.code == 1);
  CHECK(done.err.find("ended with 1") != std::string::npos);
  CHECK(done.err.find("the data folder is locked") != std::string::npos);
}

TEST_CASE("a job that is refused ends up") {
  fake_install f;
  write_text(f.folder.path / "job.toml", "steps = -1\n");
  const auto done = f.up({"--job", (f.folder.path / "job.toml").string()}).wait();
  CHECK(done.code == 1);
  CHECK(done.err.find("unknown key") != std::string::npos);
  CHECK(f.count_left() == 0);
}
