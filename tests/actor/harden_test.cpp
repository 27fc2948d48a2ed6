#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <condition_variable>
#include <deque>
#include <latch>
#include <stdexcept>
#include <string>

#include "actors/base/log.hpp"
#include "actors/runtime/connect_lane.hpp"
#include "actors/runtime/harden.hpp"
#include "actors/runtime/system.hpp"
#include "actors/wire/interfaces.hpp"
#include "tests/actor/caf_fixture.hpp"

using namespace perdura;
using namespace std::chrono_literals;

namespace {

struct victim_state {
  std::size_t heartbeats = 0;
  std::latch* readable = nullptr;
};
using victim = runtime::hardened<wire::coordinator_actor, victim_state>;

wire::coordinator_actor::behavior_type victim_behavior(victim* self, std::latch* readable) {
  runtime::harden(self);
  self->state.readable = readable;
  return {[](const worker_hello& h) {
            if (h.name == "throw") throw std::runtime_error("a bug in a handler");
            return welcome{term_number(1), 100};
          },
          [self](const worker_report&) { self->state.readable->wait(); },
          [self](const heartbeat&) { ++self->state.heartbeats; },
          [](const node_hello&) {
            return welcome{term_number(1), 100};
          },
          [](const node_heartbeat&) {},
          [](const child_exit&) {},
          [](const node_notice&) {},
          [](const challenge_request&) { return role_challenge{}; }};
}

void check_says(const std::string& line, const char* part) {
  CHECK_MESSAGE(line.find(part) != std::string::npos, line);
}

void quiet(log::level, std::string_view) {}

struct child {
  pid_t pid = -1;
  FILE* out = nullptr;

  child(std::uint16_t port, const char* mode) {
    int ends[2];
    REQUIRE(::pipe(ends) == 0);
    pid = ::fork();
    if (pid == 0) {
      ::dup2(ends[1], 1);
      ::close(ends[0]);
      ::execl(ROGUE_PEER, "rogue_peer", std::to_string(port).c_str(), mode, nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    out = ::fdopen(ends[0], "r");
  }
  std::string line() {
    char text[512] = "";
    std::string got = ::fgets(text, sizeof text, out) != nullptr ? text : "";
    while (!got.empty() && got.back() == '\n') got.pop_back();
    return got;
  }
  ~child() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    ::fclose(out);
  }
};

// A process with the victim published on a port that the system chose.
struct cluster {
  std::latch readable{1};
  runtime::actor_process process;
  wire::coordinator_actor actor;
  victim* self = nullptr;
  std::uint16_t port = 0;

  cluster() {
    log::set_sink(quiet, log::level::error);
    actor = process.system().spawn(victim_behavior, &readable);
    self = dynamic_cast<victim*>(caf::actor_cast<caf::abstract_actor*>(actor));
    const auto bound = runtime::publish(process.system(), actor, {"127.0.0.1", 0});
    REQUIRE(bound.has_value());
    port = *bound;
  }
  ~cluster() {
    if (!readable.try_wait()) readable.count_down();
    runtime::end(actor);
    log::set_sink(nullptr, log::level::info);
  }
  std::string suffers(const char* mode) { return child(port, mode).line(); }
  std::uint64_t count(runtime::mischief kind) { return self->watch().count(kind); }
  bool answers() {
    bool answered = false;
    caf::scoped_actor client{process.system()};
    client->request(actor, 10s, node_hello{})
        .receive([&](const welcome& w) { answered = w.term == term_number(1); }, [](const caf::error&) {});
    return answered;
  }
};

}  // namespace

TEST_CASE("no message of another process takes a hardened actor down") {
  using runtime::mischief;
  cluster c;
  CHECK(c.suffers("exit") == "ok");
  CHECK(c.count(mischief::exit_request) == 1);
  CHECK(c.suffers("kill") == "ok");
  CHECK(c.count(mischief::exit_request) >= 2);
  CHECK(c.suffers("error") == "ok");
  CHECK(c.count(mischief::unexpected_error) == 1);
  CHECK(c.suffers("cast") == "ok");
  CHECK(c.count(mischief::unexpected_message) == 1);
  CHECK(c.suffers("reply") == "ok");
  CHECK(c.suffers("down") == "ok");
  CHECK(c.count(mischief::unexpected_down) >= 1);
  CHECK(c.answers());
}

TEST_CASE("a request that no handler takes, or that makes one throw, is answered with an error") {
  cluster c;
  check_says(c.suffers("request"), "unexpected_message");
  check_says(c.suffers("throw"), "a bug in a handler");
  CHECK(c.count(runtime::mischief::exception) == 1);
  CHECK(c.answers());
}

TEST_CASE("a peer that is killed amid a conversation leaves the actor at work") {
  cluster c;
  {
    child peer(c.port, "hang");
    CHECK(peer.line() == "ok");
  }
  CHECK(c.answers());
}

TEST_CASE("bytes that are no CAF at all close their connection and nothing else") {
  cluster c;
  c.suffers("garbage");
  CHECK(c.answers());
  CHECK(c.suffers("cast") == "ok");
}

TEST_CASE("a connection that announces a message over the limit is closed before anything is allocated") {
  cluster c;
  CHECK(c.suffers("huge") == "closed");
  CHECK(c.answers());
}

TEST_CASE("a flood fills one peer's share of the mailbox and is then dropped and refused") {
  cluster c;
  child peer(c.port, "flood");
  check_says(peer.line(), "too many unread messages");
  CHECK(c.count(runtime::mischief::flood) > 0);
  c.readable.count_down();
  CHECK(c.answers());
  CHECK(c.self->state.heartbeats < runtime::pending_per_peer_max);
  // Read, the share is free again.
  CHECK(c.suffers("cast") == "ok");
}

TEST_CASE("remote spawning and remote configuration are refused") {
  cluster c;
  CHECK(c.suffers("spawn") == "refused");
  CHECK(c.suffers("config") == "ok");
  // CAF's own way to it still works in this process, and shows that nothing was set from outside.
  caf::scoped_actor client{c.process.system()};
  const auto server = caf::actor_cast<caf::actor>(c.process.system().config_serv());
  std::size_t values = 99;
  client->request(server, 10s, caf::get_atom_v, std::string("rogue"))
      .receive([&](const std::string&, const caf::message& value) { values = value.size(); },
               [](const caf::error&) {});
  CHECK(values == 0);
}

TEST_CASE("only loopback is published, and a used port is named") {
  cluster c;
  const auto wide = runtime::publish(c.process.system(), c.actor, {"0.0.0.0", 0});
  REQUIRE_FALSE(wide.has_value());
  CHECK(wide.failure().code == errc::refused);
  CHECK(wide.failure().message.find("certificates") != std::string::npos);
  const auto again = runtime::publish(c.process.system(), c.actor, {"127.0.0.1", c.port});
  REQUIRE_FALSE(again.has_value());
  CHECK(again.failure().message.find(std::to_string(c.port)) != std::string::npos);
}

TEST_CASE("the lane reports each failure, connects when somebody listens, and again after that one's death") {
  runtime::actor_process process;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<result<caf::strong_actor_ptr>> reports;
  auto next = [&] {
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, 30s, [&] { return !reports.empty(); }));
    auto report = std::move(reports.front());
    reports.pop_front();
    return report;
  };
  auto first = std::make_unique<child>(0, "serve");
  const auto port = static_cast<std::uint16_t>(std::stoi(first->line()));
  runtime::connect_lane lane(
      process.system(), runtime::interface_of<wire::coordinator_actor>(process.system()), {"127.0.0.1", port},
      {.first = 5ms, .longest = 20ms}, [&](result<caf::strong_actor_ptr> report) {
        const std::lock_guard lock(mutex);
        reports.push_back(std::move(report));
        changed.notify_one();
      });
  lane.connect();
  const auto connected = next();
  REQUIRE(connected.has_value());
  const auto old_node = (*connected)->node();

  first.reset();
  lane.connect();
  const auto refused = next();
  // CAF may hand out its cached handle until it has seen the connection break.
  if (!refused) CHECK(refused.failure().code == errc::unavailable);

  const child second(port, "serve");
  for (int tries = 0; tries < 1000; ++tries) {
    lane.connect();
    const auto report = next();
    if (report && (*report)->node() != old_node) return;
    if (!report) CHECK(report.failure().message.find(std::to_string(port)) != std::string::npos);
  }
  FAIL("never connected to the second process");
}

TEST_CASE("a port of another service is refused by the lane's probe of its interface") {
  cluster c;
  runtime::actor_process process;
  std::latch reported(1);
  std::string why;
  std::atomic<bool> first{true};
  runtime::connect_lane lane(
      process.system(), runtime::interface_of<wire::node_control_actor>(process.system()),
      {"127.0.0.1", c.port}, {.longest = 10s}, [&](result<caf::strong_actor_ptr> report) {
        if (!first.exchange(false)) return;
        why = report ? "connected" : report.failure().message;
        reported.count_down();
      });
  lane.connect();
  reported.wait();
  CHECK(why.find("another service") != std::string::npos);
}

TEST_CASE("virtual time fires a timeout exactly when it is due") {
  test::caf_fixture f;
  struct ticker_state {
    int ticks = 0;
  };
  using ticker = runtime::hardened<caf::actor, ticker_state>;
  const auto actor = f.system.spawn([](ticker* self) -> caf::behavior {
    runtime::harden(self);
    self->delayed_send(self, 50ms, caf::tick_atom_v);
    return {[self](caf::tick_atom) {
      ++self->state.ticks;
      self->delayed_send(self, 50ms, caf::tick_atom_v);
      if (self->state.ticks == 2) throw std::runtime_error("survived");
    }};
  });
  auto* self = dynamic_cast<ticker*>(caf::actor_cast<caf::abstract_actor*>(actor));
  log::set_sink(quiet, log::level::error);
  f.advance(49ms);
  CHECK(self->state.ticks == 0);
  f.advance(1ms);
  CHECK(self->state.ticks == 1);
  f.advance(50ms);
  f.advance(50ms);
  CHECK(self->state.ticks == 3);
  CHECK(self->watch().count(runtime::mischief::exception) == 1);
  runtime::end(actor);
  f.run();
  log::set_sink(nullptr, log::level::info);
}

TEST_CASE("the same seed chooses the same interleaving, another seed another") {
  auto order = [](std::uint64_t seed) {
    test::caf_fixture f(seed);
    std::string seen;
    for (char name = 'a'; name < 'i'; ++name)
      caf::anon_send(f.system.spawn([&seen, name](caf::event_based_actor*) -> caf::behavior {
        return {[&seen, name](int) { seen += name; }};
      }),
                     1);
    f.run();
    return seen;
  };
  CHECK(order(7) == order(7));
  CHECK(order(7) != order(8));
  CHECK(order(7).size() == 8);
}
