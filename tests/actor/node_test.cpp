#include <algorithm>

#include "tests/actor/node_fixture.hpp"
#include "tests/unit/tiny_http.hpp"
#include "worker/node/node_actor.hpp"
#include "worker/node/worker_keeper.hpp"

using namespace perdura;
using namespace std::chrono_literals;
using test::agent;
using test::fake_coordinator;
using test::life;
using test::told;

namespace {

constexpr term_number term(3);

bool has_exit(const told& t, incarnation worker) {
  return std::any_of(t.exits.begin(), t.exits.end(), [&](const child_exit& e) { return e.worker == worker; });
}

// An agent with two workers that has said hello.
struct joined {
  explicit joined(std::vector<std::string> more = {"--devices", "2"})
      : node(coordinator->port(), std::move(more)) {
    node.start();
    coordinator->told.until("a hello comes", [](const told& t) { return !t.hellos.empty(); });
    who = coordinator->told.hellos.front().who;
  }
  std::unique_ptr<fake_coordinator> coordinator = std::make_unique<fake_coordinator>();
  agent node;
  incarnation who;
};

life of_device(const std::vector<life>& lives, const std::string& name) {
  // The newest one.
  const auto at =
      std::find_if(lives.rbegin(), lives.rend(), [&](const life& l) { return l.after("--name") == name; });
  REQUIRE(at != lives.rend());
  return *at;
}

}  // namespace

TEST_CASE("an agent says who it is, starts a worker for each device and sends heartbeats") {
  joined j;
  const auto& hello = j.coordinator->told.hellos.front();
  CHECK(hello.protocol == protocol_version);
  CHECK(wire::check_release(hello.protocol, hello.type_table, "node").has_value());
  CHECK(hello.name == "node-1");
  CHECK(hello.devices == 2);
  CHECK(hello.pid == static_cast<std::uint32_t>(j.node.pid));
  CHECK_FALSE(hello.host.empty());

  const auto lives = j.node.lives(2);
  const auto first = of_device(lives, "node-1/0");
  CHECK(first.words ==
        std::vector<std::string>{"--coordinator", "127.0.0.1:" + std::to_string(j.coordinator->port()),
                                 "--name", "node-1/0", "--node", to_string(j.who), "--incarnation",
                                 to_string(first.who()), "--log", j.node.folder.string()});
  CHECK_FALSE(first.who().is_none());
  CHECK(first.who() != of_device(lives, "node-1/1").who());
  CHECK(j.node.text_of("worker-node-1-0.out") == "output\n");
  j.coordinator->told.until("a heartbeat comes with both workers", [&](const told& t) {
    return !t.heartbeats.empty() && t.heartbeats.back().who == j.who &&
           t.heartbeats.back().workers_alive == 2 && t.heartbeats.back().resident_bytes > 0;
  });
}

TEST_CASE("workers are started before any coordinator is there") {
  // A port that nobody listens on.
  const auto port = fake_coordinator().port();
  agent node(port, {"--devices", "3"});
  node.start();
  node.lives(3);
}

TEST_CASE("a worker that is killed is reported, and comes back as a new life") {
  joined j;
  const auto victim = of_device(j.node.lives(2), "node-1/1");
  ::kill(victim.pid, SIGKILL);
  auto& told = j.coordinator->told;
  told.until("its end is reported", [&](const test::told& t) { return has_exit(t, victim.who()); });
  CHECK(told.exits.size() == 1);
  CHECK(told.exits[0].node == j.who);
  CHECK(told.exits[0].how == "was killed by SIGKILL");
  CHECK_FALSE(told.exits[0].killed);
  const auto next = of_device(j.node.lives(3), "node-1/1");
  CHECK(next.who() != victim.who());
  CHECK(next.pid != victim.pid);
}

TEST_CASE("an order to kill ends that life alone, unless it is of an old term or for another agent") {
  joined j;
  const auto lives = j.node.lives(2);
  const auto spared = of_device(lives, "node-1/0");
  const auto victim = of_device(lives, "node-1/1");
  auto& c = *j.coordinator;
  c.told.until("it has been welcomed", [](const told& t) { return !t.heartbeats.empty(); });
  c.order(term_number(2), j.who, kill_worker{spared.who(), "an old coordinator"});
  c.order(term, victim.who(), kill_worker{spared.who(), "to another"});
  c.order(term, j.who, kill_worker{j.who, "no such life"});
  c.order(term + 1, j.who, kill_worker{victim.who(), "fenced"});
  c.told.until("the end is reported", [&](const told& t) { return has_exit(t, victim.who()); });
  CHECK(c.told.exits.front().killed);
  // The one before the last is now of an old term.
  c.order(term, j.who, kill_worker{spared.who(), "an old coordinator"});
  const auto next = of_device(j.node.lives(3), "node-1/1");
  c.order(term + 1, j.who, kill_worker{next.who(), "fenced again"});
  c.told.until("the end is reported", [&](const told& t) { return has_exit(t, next.who()); });
  CHECK_FALSE(test::is_gone(spared.pid));
  CHECK_FALSE(has_exit(c.told, spared.who()));
}

TEST_CASE("starting the missing does not wait for their time") {
  agent scripts(7400);
  const auto program = scripts.folder / "late";
  worker::keeper_options options;
  options.program = program;
  options.name = "node-1";
  options.log_folder = scripts.folder;
  worker::worker_keeper keeper(options);
  // Each failure doubles the pause.
  for (int i = 0; i < 10; ++i) keeper.start_missing();
  CHECK(keeper.alive() == 0);
  std::filesystem::copy(scripts.folder / "worker", program);
  keeper.start_missing();
  CHECK(keeper.alive() == 1);
  keeper.start_missing();
  CHECK(keeper.alive() == 1);
  keeper.stop();
  CHECK(keeper.look_after().size() == 1);
  CHECK(keeper.is_over());
  keeper.start_missing();
  CHECK(keeper.alive() == 0);
}

TEST_CASE("an order to stop ends all workers, then the agent") {
  joined j;
  j.node.lives(2);
  j.coordinator->order(term, j.who, stop_node{"the cluster is shut down"});
  CHECK(j.node.wait() == 0);
  j.node.check_all_gone();
  CHECK(j.node.lives().size() == 2);
  CHECK(j.node.text_of("node-1.log").find("the cluster is shut down") != std::string::npos);
}

TEST_CASE("SIGINT, and without any grace SIGTERM, end all workers, then the agent") {
  for (const int signal : {SIGTERM, SIGINT}) {
    joined j({"--devices", "2", "--grace-ms", signal == SIGTERM ? "0" : "30000"});
    j.node.lives(2);
    ::kill(j.node.pid, signal);
    CHECK(j.node.wait() == 0);
    j.node.check_all_gone();
  }
}

TEST_CASE("an agent says where its machine stands; two on one machine say the same unless told otherwise") {
  joined plain({"--devices", "1"});
  joined other({"--devices", "1"});
  joined told({"--host-label", "box", "--rack", "r1", "--zone", "z1"});
  const auto labels = [](joined& j) { return j.coordinator->told.hellos.front().labels; };
  CHECK_FALSE(labels(plain).host.empty());
  CHECK(labels(plain) == labels(other));
  CHECK(labels(told) == node_labels{"box", "r1", "z1"});
}

TEST_CASE("a SIGTERM is a notice: workers go on, none is started, and the coordinator says when to stop") {
  joined j;
  const auto lives = j.node.lives(2);
  auto& c = *j.coordinator;
  c.told.until("it has been welcomed", [](const told& t) { return !t.heartbeats.empty(); });
  ::kill(j.node.pid, SIGTERM);
  c.told.until("a notice comes", [](const told& t) { return !t.notices.empty(); });
  {
    const std::lock_guard lock(c.told.mutex);
    const auto& notice = c.told.notices.front();
    CHECK(notice.who == j.who);
    CHECK(notice.why == "SIGTERM");
    CHECK(notice.deadline_ms <= 30000);
    CHECK(notice.deadline_ms > 20000);
  }
  const auto& victim = lives.front();
  ::kill(victim.pid, SIGKILL);
  c.told.until("its end is reported", [&](const told& t) { return has_exit(t, victim.who()); });
  c.order(term, j.who, start_workers{});
  c.told.until("heartbeats say that one is left",
               [](const told& t) { return t.heartbeats.back().workers_alive == 1; });
  CHECK_FALSE(test::is_gone(lives.back().pid));
  c.order(term, j.who, stop_node{"its workers hold nothing any more"});
  CHECK(j.node.wait() == 0);
  j.node.check_all_gone();
  CHECK(j.node.lives().size() == 2);
}

TEST_CASE("a second SIGTERM ends all at once") {
  joined j;
  j.node.lives(2);
  ::kill(j.node.pid, SIGTERM);
  j.coordinator->told.until("a notice comes", [](const told& t) { return !t.notices.empty(); });
  ::kill(j.node.pid, SIGTERM);
  CHECK(j.node.wait() == 0);
  j.node.check_all_gone();
}

TEST_CASE("an agent that has been told to go ends at its deadline, with or without a coordinator") {
  const auto port = fake_coordinator().port();
  agent node(port, {"--devices", "2", "--grace-ms", "300"});
  node.start();
  node.lives(2);
  ::kill(node.pid, SIGTERM);
  CHECK(node.wait() == 0);
  node.check_all_gone();
  CHECK(node.text_of("node-1.log").find("its time is up") != std::string::npos);
}

TEST_CASE("an agent that goes and has no worker left ends") {
  joined j;
  const auto lives = j.node.lives(2);
  ::kill(j.node.pid, SIGTERM);
  j.coordinator->told.until("a notice comes", [](const told& t) { return !t.notices.empty(); });
  for (const auto& l : lives) ::kill(l.pid, SIGKILL);
  CHECK(j.node.wait() == 0);
}

TEST_CASE("a coordinator that comes back hears that an agent goes, with the time that is left") {
  joined j;
  j.node.lives(2);
  ::kill(j.node.pid, SIGTERM);
  j.coordinator->told.until("a notice comes", [](const told& t) { return !t.notices.empty(); });
  const auto first = j.coordinator->told.notices.front().deadline_ms;
  const auto port = j.coordinator->port();
  j.coordinator = nullptr;
  j.coordinator = std::make_unique<fake_coordinator>(welcome{term + 1, 20}, port);
  auto& told = j.coordinator->told;
  told.until("the notice comes again", [](const test::told& t) { return !t.notices.empty(); });
  CHECK(told.hellos.front().going);
  CHECK(told.notices.front().deadline_ms < first);
}

TEST_CASE("a notice file that appears is a notice; an earlier deadline than the one before counts") {
  agent other(7400);  // for a folder
  const auto file = other.folder / "go";
  joined j({"--devices", "1", "--notice-file", file.string(), "--notice-poll-ms", "20"});
  j.node.lives(1);
  std::ofstream(other.folder / "new") << "3600\n";
  std::filesystem::rename(other.folder / "new", file);
  auto& told = j.coordinator->told;
  told.until("a notice comes", [](const test::told& t) { return !t.notices.empty(); });
  CHECK(told.notices.front().deadline_ms > 3'000'000);
  CHECK(told.notices.front().why.find(file.string()) != std::string::npos);
  ::kill(j.node.pid, SIGTERM);
  told.until("another notice comes", [](const test::told& t) { return t.notices.size() == 2; });
  CHECK(told.notices.back().deadline_ms <= 30000);
  CHECK(told.notices.back().why == "SIGTERM");
}

TEST_CASE("a metadata service that is asked for one gives notice") {
  std::atomic<bool> is_there = false;
  test::tiny_http service([&](const test::asked&) { return test::answered{is_there ? 200 : 404, "60"}; });
  joined j({"--devices", "1", "--metadata", "url", "--metadata-url", service.url() + "/going",
            "--notice-poll-ms", "20"});
  j.node.lives(1);
  auto& told = j.coordinator->told;
  told.until("heartbeats come", [](const test::told& t) { return t.heartbeats.size() >= 5; });
  CHECK(told.notices.empty());
  is_there = true;
  told.until("a notice comes", [](const test::told& t) { return !t.notices.empty(); });
  CHECK(told.notices.front().deadline_ms > 50000);
  CHECK(told.notices.front().why.find("/going") != std::string::npos);
}

TEST_CASE("an agent that is killed leaves no worker") {
  joined j;
  j.node.lives(2);
  j.node.kill_agent();
  j.node.check_all_gone();
}

TEST_CASE("a coordinator that comes back hears a hello, and of the ends meanwhile; workers go on") {
  joined j;
  const auto lives = j.node.lives(2);
  const auto spared = of_device(lives, "node-1/0");
  const auto victim = of_device(lives, "node-1/1");
  const auto port = j.coordinator->port();
  j.coordinator.reset();
  ::kill(victim.pid, SIGKILL);
  j.node.lives(3);
  j.coordinator = std::make_unique<fake_coordinator>(welcome{term + 1, 20}, port);
  auto& told = j.coordinator->told;
  told.until("the end is reported", [&](const test::told& t) { return has_exit(t, victim.who()); });
  CHECK(told.hellos.front().who == j.who);
  CHECK(told.exits.size() == 1);
  told.until("heartbeats come", [](const test::told& t) { return !t.heartbeats.empty(); });
  CHECK_FALSE(test::is_gone(spared.pid));
  CHECK(j.node.lives().size() == 3);
}

TEST_CASE("a coordinator of an older term is asked again, and told nothing") {
  joined j({"--devices", "1"});
  j.coordinator->told.until("it has been welcomed", [](const told& t) { return !t.heartbeats.empty(); });
  const auto victim = j.node.lives(1).back();
  const auto port = j.coordinator->port();
  j.coordinator = nullptr;
  j.coordinator = std::make_unique<fake_coordinator>(welcome{term_number(2), 20}, port);
  auto& told = j.coordinator->told;
  told.until("it is asked", [](const test::told& t) { return !t.hellos.empty(); });
  j.coordinator->order(term_number(2), j.who, kill_worker{victim.who(), "an old coordinator"});
  told.until("it is asked again", [](const test::told& t) { return t.hellos.size() >= 3; });
  CHECK(told.heartbeats.empty());
  CHECK_FALSE(test::is_gone(victim.pid));
}

TEST_CASE("a coordinator that is not ready yet is asked again") {
  auto coordinator = std::make_unique<fake_coordinator>(error{errc::unavailable, "waiting out a lease"});
  agent node(coordinator->port());
  node.start();
  coordinator->told.until("it is asked", [](const told& t) { return t.hellos.size() >= 2; });
  {
    const std::lock_guard lock(coordinator->told.mutex);
    coordinator->told.answer = welcome{term, 20};
  }
  coordinator->told.until("heartbeats come", [](const told& t) { return !t.heartbeats.empty(); });
}

TEST_CASE("an agent that will never be taken ends with the reason, and its workers with it") {
  fake_coordinator coordinator(error{errc::version_mismatch, "node node-1 speaks protocol 1, this is 2"});
  agent node(coordinator.port(), {"--devices", "2"});
  node.start();
  CHECK(node.wait() == 1);
  node.check_all_gone();
  CHECK(node.text_of("errors").find("speaks protocol 1, this is 2") != std::string::npos);
}

TEST_CASE("a fault is for the first life of the first worker alone") {
  joined j({"--devices", "2", "--fault", "kill:7:vote"});
  const auto lives = j.node.lives(2);
  const auto first = of_device(lives, "node-1/0");
  CHECK(first.after("--fault") == "kill:7:vote");
  CHECK(of_device(lives, "node-1/1").after("--fault").empty());
  ::kill(first.pid, SIGKILL);
  CHECK(of_device(j.node.lives(3), "node-1/0").after("--fault").empty());
}

TEST_CASE("a worker's output that has grown large is put aside when it starts again") {
  const auto port = fake_coordinator().port();
  agent node(port);
  const auto output = node.folder / "worker-node-1-0.out";
  std::ofstream(output) << "old";
  std::filesystem::resize_file(output, worker::output_bytes_max + 1);
  node.start();
  node.lives(1);
  CHECK(std::filesystem::file_size(output.string() + ".1") == worker::output_bytes_max + 1);
  CHECK(node.text_of("worker-node-1-0.out") == "output\n");
}

TEST_CASE("wrong command lines are refused with what is allowed") {
  const auto refuses = [](const char* flag, const char* value, int code, const char* why) {
    agent node(7400, {"--devices", "1"});
    node.change(flag, value);
    node.start();
    CHECK(node.wait() == code);
    const auto said = node.text_of("errors");
    CHECK_MESSAGE(said.find(why) != std::string::npos, said);
  };
  refuses("--join", "192.0.2.1:7400", 1, "the cluster's certificates are needed");
  refuses("--join", "nowhere", 1, "expected HOST:PORT");
  refuses("--name", "a/b", 2, "expected 1 to 64 letters");
  refuses("--devices", "0", 2, "--devices");
}

TEST_CASE("of the ends that nobody heard the newest are kept") {
  const auto port = fake_coordinator().port();
  runtime::actor_process process;
  worker::node::node_options options;
  options.hello.who = {1, 1};
  options.coordinator = {"127.0.0.1", port};
  options.workers_alive = [] { return 0U; };
  const auto actor = process.system().spawn(worker::node::agent, std::move(options));
  constexpr std::uint64_t count = worker::node::exits_kept + 5;
  for (std::uint64_t i = 1; i <= count; ++i)
    caf::anon_send(actor, worker::node::worker_ended{{{1, 1}, {2, i}, "ended", false}});
  {
    fake_coordinator coordinator(welcome{term, 20}, port);
    coordinator.told.until("the newest comes", [&](const told& t) { return has_exit(t, {2, count}); });
    CHECK(coordinator.told.exits.size() == worker::node::exits_kept);
    CHECK(coordinator.told.exits.front().worker == incarnation{2, 6});
  }
  runtime::end(actor);
}
