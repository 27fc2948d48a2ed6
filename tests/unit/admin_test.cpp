#include <arpa/inet.h>
#include <capnp/rpc-twoparty.h>
#include <doctest/doctest.h>
#include <kj/async-io.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "coordinator/admin/admin.capnp.h"
#include "coordinator/admin/client.hpp"
#include "coordinator/admin/server.hpp"
#include "tests/unit/fake_admin_service.hpp"

using namespace perdura;
using namespace perdura::admin;

namespace {

using namespace std::chrono_literals;

server_options any_port() {
  server_options options;
  options.port = 0;
  return options;
}

struct fixture {
  explicit fixture(server_options options = any_port()) {
    auto started = server::start(service, options);
    REQUIRE(started);
    admin = std::move(*started);
  }
  std::unique_ptr<admin_api> client() {
    auto c = connect("127.0.0.1", admin->port());
    REQUIRE_MESSAGE(c, (c ? "" : c.failure().message));
    return std::move(*c);
  }

  fake_admin_service service;
  std::unique_ptr<server> admin;
};

int raw_connection(std::uint16_t port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  return fd;
}

// Waits until the peer closes; false after five seconds without that.
bool is_closed_by_peer(int fd) {
  timeval patience{5, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char buffer[4096];
  ssize_t n = 1;
  while ((n = recv(fd, buffer, sizeof buffer, 0)) > 0) {}
  return n == 0 || errno == ECONNRESET;
}

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

}  // namespace

TEST_CASE("listening on more than loopback is refused with the reason") {
  fake_admin_service service;
  for (const char* host : {"0.0.0.0", "192.0.2.1", "::", "example.org"}) {
    server_options options = any_port();
    options.host = host;
    auto started = server::start(service, options);
    REQUIRE_FALSE(started);
    CHECK(started.failure().code == errc::refused);
    CHECK(started.failure().message.find("needs the cluster's certificates") != std::string::npos);
  }
}

TEST_CASE("a port in use is an error that names it") {
  fixture first;
  server_options options = any_port();
  options.port = first.admin->port();
  auto second = server::start(first.service, options);
  REQUIRE_FALSE(second);
  CHECK(second.failure().message.find(std::to_string(options.port)) != std::string::npos);
}

TEST_CASE("every read arrives as the service gave it") {
  fixture f;
  auto c = f.client();

  auto status = c->status();
  REQUIRE(status);
  CHECK(status->version == "0.1.0-test");
  CHECK(status->at == era{term_number(2), 17});
  CHECK(status->uptime_ms == 3723000);
  CHECK(status->admin_port == 7401);
  CHECK(status->log_folder == "/log");

  auto nodes = c->nodes();
  REQUIRE(nodes);
  REQUIRE(nodes->size() == 2);
  CHECK((*nodes)[1].name == "node-2");
  CHECK((*nodes)[1].state == node_state::suspect);
  CHECK((*nodes)[1].who == incarnation{2, 20});

  auto workers = c->workers();
  REQUIRE(workers);
  REQUIRE(workers->size() == 3);
  CHECK((*workers)[0].slots == 8);
  CHECK((*workers)[0].slot_ms == 12.5);
  CHECK((*workers)[1].state == worker_state::learning);
  CHECK((*workers)[1].lag == 1);
  CHECK((*workers)[2].phase == "compute");
  CHECK((*workers)[2].resident_bytes == 305u << 20);

  auto jobs = c->jobs();
  REQUIRE(jobs);
  REQUIRE(jobs->size() == 1);
  const auto& job = jobs->front();
  CHECK(job.state == job_state::running);
  CHECK(job.step == step_number(42));
  CHECK(job.learning_rate == 2e-3);
  CHECK(job.plan == plan_id{{term_number(2), 17}, 3});
  CHECK(job.last_checkpoint == step_number(40));

  auto plan = c->plan("j1");
  REQUIRE(plan);
  REQUIRE(plan->members.size() == 2);
  CHECK(plan->members[1].blocks == std::vector<block>{{8, 4}, {12, 4}});

  auto steps = c->steps("", step_number(39), 2);
  REQUIRE(steps);
  REQUIRE(steps->size() == 2);
  CHECK((*steps)[0].step == step_number(39));
  CHECK(std::isnan((*steps)[1].loss));

  auto recoveries = c->recoveries("fashion");
  REQUIRE(recoveries);
  REQUIRE(recoveries->size() == 2);
  CHECK((*recoveries)[0].committed_ms == 51.5);
  CHECK_FALSE((*recoveries)[1].committed_ms.has_value());

  auto checkpoints = c->checkpoints("j1");
  REQUIRE(checkpoints);
  REQUIRE(checkpoints->size() == 2);
  CHECK((*checkpoints)[1].state == checkpoint_state::writing);
}

TEST_CASE("a job without a checkpoint arrives without one") {
  fixture f;
  auto job = f.service.job();
  job.last_checkpoint.reset();
  f.service.set_job(job);
  CHECK_FALSE(f.client()->jobs()->front().last_checkpoint.has_value());
}

TEST_CASE("every write reaches the service and is audited with its outcome") {
  fixture f;
  auto c = f.client();
  auto submitted = c->submit("name = \"fashion\"", "fashion.toml");
  REQUIRE(submitted);
  CHECK(submitted->job == "j1");
  CHECK(f.service.submitted_text == "name = \"fashion\"");
  CHECK(c->pause("j1")->note == "paused after step 42");
  CHECK(f.service.job().state == job_state::paused);
  CHECK(c->resume("j1"));
  CHECK(c->checkpoint_now(""));
  CHECK(c->collect_garbage("j1", true)->note == "would collect j1");
  CHECK(c->collect_garbage("j1", false)->note == "collects j1");
  CHECK(c->rebuild_index()->note == "rebuilt");
  CHECK(c->drain("node-1", std::chrono::seconds(30))->note == "node-1 leaves after step 43, within 30000 ms");
  CHECK(c->kill("node-1/0"));
  CHECK(c->cancel("j1"));
  CHECK(c->shutdown());
  CHECK(f.service.is_shut_down);

  std::vector<std::string> actions;
  for (const auto& entry : f.service.audited()) {
    CHECK(entry.who == "local");
    CHECK(entry.outcome == "ok");
    actions.push_back(entry.action + " " + entry.subject);
  }
  CHECK(actions == std::vector<std::string>{"submit fashion.toml", "pause j1", "resume j1", "checkpoint ",
                                            "collect garbage j1", "collect garbage j1", "rebuild the index ",
                                            "drain node-1", "kill node-1/0", "cancel j1", "shutdown "});
}

TEST_CASE("a refused write comes back with its code and reason, and is audited too") {
  fixture f;
  auto killed = f.client()->kill("node-9/0");
  REQUIRE_FALSE(killed);
  CHECK(killed.failure().code == errc::not_found);
  CHECK(killed.failure().message == "no worker is named node-9/0");
  REQUIRE(f.service.audited().size() == 1);
  CHECK(f.service.audited()[0].outcome == "no worker is named node-9/0");
}

TEST_CASE("a job file with errors comes back with all of them") {
  fixture f;
  auto submitted = f.client()->submit("steps = -1", "bad.toml");
  REQUIRE(submitted);
  CHECK(submitted->job.empty());
  CHECK(submitted->errors.size() == 2);
  CHECK(f.service.audited()[0].outcome.rfind("refused: bad.toml:3", 0) == 0);
}

TEST_CASE("names that are too long or carry control characters never reach the service") {
  fixture f;
  auto c = f.client();
  for (const std::string& name : {std::string(300, 'x'), std::string("node\x1b[31m")}) {
    auto r = c->drain(name, std::nullopt);
    REQUIRE_FALSE(r);
    CHECK(r.failure().code == errc::invalid_argument);
  }
  CHECK(c->plan(std::string("a\nb")).failure().code == errc::invalid_argument);
}

TEST_CASE("a follower is answered as soon as there is an event") {
  fixture f;
  auto c = f.client();
  std::thread writer([&] {
    eventually([&] { return f.service.event_reads > 0; });
    f.service.add_event("worker_dead", "node-1/0");
    f.admin->events_grew();
  });
  auto page = c->events({.wait_ms = 20000});
  writer.join();
  REQUIRE(page);
  REQUIRE(page->events.size() == 1);
  CHECK(page->events[0].kind == "worker_dead");
  CHECK(page->events[0].fields ==
        std::vector<std::pair<std::string, std::string>>{{"slots", "4"}, {"lease_ms", "1500"}});
  CHECK(page->next == 1);
}

TEST_CASE("an event between two questions of a follower is not missed") {
  fixture f;
  auto c = f.client();
  std::atomic<bool> done = false;
  std::thread writer([&] {
    for (int i = 0; i < 300; ++i) {
      f.service.add_event("tick", std::to_string(i));
      f.admin->events_grew();
      if (i % 10 == 0) std::this_thread::sleep_for(1ms);
    }
    done = true;
  });
  std::uint64_t after = 0;
  std::vector<std::uint64_t> seen;
  while (seen.size() < 300) {
    auto page = c->events({.after = after, .limit = 7, .wait_ms = 5000});
    REQUIRE(page);
    REQUIRE_FALSE(page->events.empty());
    for (const auto& e : page->events) seen.push_back(e.sequence);
    after = page->next;
  }
  writer.join();
  for (std::uint64_t i = 0; i < seen.size(); ++i) CHECK(seen[i] == i + 1);
}

TEST_CASE("a follower waits no longer than it asked to") {
  fixture f;
  auto page = f.client()->events({.wait_ms = 30});
  REQUIRE(page);
  CHECK(page->events.empty());
}

TEST_CASE("the newest events are had without reading all") {
  fixture f;
  for (int i = 0; i < 20; ++i) f.service.add_event("tick", std::to_string(i));
  auto page = f.client()->events({.limit = 3, .newest = true});
  REQUIRE(page);
  REQUIRE(page->events.size() == 3);
  CHECK(page->events[0].sequence == 18);
  CHECK(page->next == 20);
}

TEST_CASE("a follower that falls behind what the log keeps is cut off with the reason") {
  fixture f;
  f.service.events_kept_max = 10;
  f.service.add_event("tick", "0");
  auto c = f.client();
  auto first = c->events({});
  REQUIRE(first);
  for (int i = 0; i < 50; ++i) f.service.add_event("tick", std::to_string(i));
  auto next = c->events({.after = first->next});
  REQUIRE_FALSE(next);
  CHECK(next.failure().code == errc::exhausted);
  CHECK(next.failure().message.find("the log starts at 42") != std::string::npos);
  CHECK(c->events({})->events.front().sequence == 42);
}

TEST_CASE("garbage on the port ends that connection alone") {
  fixture f;
  auto c = f.client();
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const std::string zeros(4096, '\0');
  const std::string ones(4096, '\xff');
  std::string framed(64, '\x5a');  // one segment of 7 words, then no message of the protocol
  framed.replace(0, 8, std::string("\0\0\0\0\7\0\0\0", 8));
  for (const auto& bytes : {http, ones, framed}) {
    const int fd = raw_connection(f.admin->port());
    CHECK(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    CHECK(is_closed_by_peer(fd));
    close(fd);
  }
  const int fd = raw_connection(f.admin->port());
  send(fd, zeros.data(), zeros.size(), MSG_NOSIGNAL);
  close(fd);
  CHECK(c->status());
}

TEST_CASE("a message that announces more than the limit is refused before it is read") {
  fixture f;
  const int fd = raw_connection(f.admin->port());
  // One segment of 2^28 words: 2 GiB.
  const unsigned char header[8] = {0, 0, 0, 0, 0, 0, 0, 0x10};
  CHECK(send(fd, header, sizeof header, MSG_NOSIGNAL) == 8);
  CHECK(is_closed_by_peer(fd));
  close(fd);
  CHECK(f.client()->status());
}

TEST_CASE("a job file beyond the message limit fails, and the next client is served") {
  server_options options = any_port();
  options.message_bytes_max = 64 << 10;
  fixture f(options);
  CHECK_FALSE(f.client()->submit(std::string(256 << 10, 'x'), "big.toml"));
  CHECK(f.service.submitted_text.empty());
  CHECK(f.client()->status());
}

TEST_CASE("one connection beyond the limit costs the longest silent one, not a follower") {
  server_options options = any_port();
  options.connections_max = 4;
  fixture f(options);
  std::atomic<bool> has_event = false;
  std::thread follower([&] {
    auto page = f.client()->events({.wait_ms = 20000});
    has_event = page && page->events.size() == 1;
  });
  REQUIRE(eventually([&] { return f.service.event_reads > 0; }));
  std::vector<int> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(raw_connection(f.admin->port()));
  CHECK(is_closed_by_peer(silent[0]));
  CHECK(f.client()->status());
  CHECK(f.admin->counts().connections <= 5);
  f.service.add_event("tick", "0");
  f.admin->events_grew();
  follower.join();
  CHECK(has_event);
  for (int fd : silent) close(fd);
}

TEST_CASE("a connection without a login is closed") {
  server_options options = any_port();
  options.login_max = 50ms;
  fixture f(options);
  const int fd = raw_connection(f.admin->port());
  CHECK(is_closed_by_peer(fd));
  close(fd);
  CHECK(eventually([&] { return f.admin->counts().cut_off == 1; }));
}

namespace {

// Speaks the protocol by itself, without the client's manners. While one lives, its thread has no other
// client.
struct bare_client {
  explicit bare_client(std::uint16_t port)
      : io(kj::setupAsyncIo()),
        stream(io.provider->getNetwork()
                   .parseAddress("127.0.0.1", port)
                   .then([](kj::Own<kj::NetworkAddress> a) { return a->connect().attach(kj::mv(a)); })
                   .wait(io.waitScope)),
        client(*stream) {}

  auto login(std::uint32_t version) {
    auto request = client.bootstrap().castAs<schema::Gate>().loginRequest();
    request.initHello().setApiVersion(version);
    return request.send().wait(io.waitScope);
  }

  kj::AsyncIoContext io;
  kj::Own<kj::AsyncIoStream> stream;
  capnp::TwoPartyClient client;
};

}  // namespace

TEST_CASE("a client of another version is refused by name") {
  fixture f;
  bare_client client(f.admin->port());
  const auto response = client.login(99);
  REQUIRE(response.isError());
  CHECK(response.getError().getCode() == static_cast<std::uint16_t>(errc::version_mismatch));
}

TEST_CASE("a client with more calls open than allowed is cut off") {
  server_options options = any_port();
  options.open_calls_max = 8;
  fixture f(options);
  {
    bare_client client(f.admin->port());
    auto observer = client.login(schema::API_VERSION).getValue().getObserver();
    kj::Vector<kj::Promise<void>> pending;
    for (int i = 0; i < 20; ++i) {
      auto request = observer.eventsRequest();
      request.initQuery().setWaitMs(20000);
      pending.add(request.send().ignoreResult());
    }
    bool is_cut_off = false;
    try {
      kj::joinPromises(pending.releaseAsArray()).wait(client.io.waitScope);
    } catch (const kj::Exception& e) {
      is_cut_off = std::string(e.getDescription().cStr()).find("cut off") != std::string::npos;
    }
    CHECK(is_cut_off);
  }
  CHECK(f.client()->status());
}

TEST_CASE("a client that leaves more answers unread than allowed is cut off") {
  server_options options = any_port();
  options.open_calls_max = 1000000;
  options.unsent_bytes_max = 1 << 20;
  fixture f(options);
  for (int i = 0; i < 500; ++i) f.service.add_event("tick", "x", std::string(4000, 'y'));
  {
    bare_client client(f.admin->port());
    auto observer = client.login(schema::API_VERSION).getValue().getObserver();
    // Its loop runs only to write from here on: what the kernel does not take stays with the server.
    kj::Vector<kj::Promise<void>> pending;
    for (int i = 0; i < 50 && f.admin->counts().connections > 0; ++i) {
      auto request = observer.eventsRequest();
      request.initQuery().setLimit(500);
      pending.add(request.send().ignoreResult());
      kj::evalLast([] {}).wait(client.io.waitScope);
      std::this_thread::sleep_for(1ms);
    }
    CHECK(eventually([&] { return f.admin->counts().connections == 0; }));
  }
  CHECK(f.client()->status());
}

TEST_CASE("a client that stops reading loses its connection") {
  server_options options = any_port();
  options.unread_max = 50ms;
  options.message_bytes_max = 64 << 20;
  fixture f(options);
  // More than the kernel's buffers take.
  for (int i = 0; i < 500; ++i) f.service.add_event("tick", "x", std::string(80000, 'y'));
  bare_client client(f.admin->port());
  auto observer = client.login(schema::API_VERSION).getValue().getObserver();
  auto request = observer.eventsRequest();
  request.initQuery().setLimit(500);
  auto pending = request.send();
  kj::evalLast([] {}).wait(client.io.waitScope);
  CHECK(eventually([&] { return f.admin->counts().cut_off == 1 && f.admin->counts().connections == 0; }));
}

TEST_CASE("stopping the server ends its clients' calls") {
  auto f = std::make_unique<fixture>();
  auto c = f->client();
  std::thread stopper([&] {
    eventually([&] { return f->service.event_reads > 0; });
    f->admin.reset();
  });
  auto page = c->events({.wait_ms = 20000});
  stopper.join();
  REQUIRE_FALSE(page);
  CHECK(page.failure().code == errc::unavailable);
  CHECK_FALSE(c->status());
}

TEST_CASE("connecting where nobody listens, or something else does, says so") {
  std::uint16_t port = 0;
  {
    fixture f;
    port = f.admin->port();
  }
  auto none = connect("127.0.0.1", port);
  REQUIRE_FALSE(none);
  CHECK(none.failure().code == errc::unavailable);

  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  REQUIRE(bind(listener, reinterpret_cast<sockaddr*>(&at), size) == 0);
  REQUIRE(listen(listener, 1) == 0);
  getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size);
  auto mute = connect("127.0.0.1", ntohs(at.sin_port), {.connect_timeout = 50ms});
  REQUIRE_FALSE(mute);
  CHECK(mute.failure().message.find("does not answer within 50 ms") != std::string::npos);
  close(listener);
}
