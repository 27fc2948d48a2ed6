// A second process for harden_test: does one bad thing to the actor published on a port, or publishes one
// itself.
//   rogue_peer PORT MODE [CERTIFICATES ROLE]
#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <caf/io/all.hpp>
#include <caf/io/basp_broker.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <set>
#include <string>

#include "actors/runtime/harden.hpp"
#include "actors/runtime/system.hpp"
#include "actors/tls/proof.hpp"
#include "actors/wire/interfaces.hpp"

using namespace perdura;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 5s;

worker_hello hello(const std::string& name) {
  worker_hello h;
  h.protocol = protocol_version;
  h.type_table = wire::type_table_hash();
  h.who = {7, 7};
  h.name = name;
  return h;
}

// Prints "ok" or the error of a request.
template <class... Message>
void ask(caf::scoped_actor& self, const caf::actor& target, Message... message) {
  self->request(target, patience, std::move(message)...)
      .receive([](const welcome&) { std::cout << "ok" << std::endl; },
               [&](const caf::error& e) { std::cout << self->system().render(e) << std::endl; });
}

int raw_connection(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) std::exit(3);
  return fd;
}

void garbage(std::uint16_t port) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const int fd = raw_connection(port);
    std::srand(seed);
    std::string bytes(4096, '\0');
    for (char& c : bytes) c = static_cast<char>(std::rand());
    if (seed % 2 == 0) bytes.resize(17);
    (void)!::write(fd, bytes.data(), bytes.size());
    ::close(fd);
  }
}

// Announces a message of 4 GiB and says whether the other side waits for it.
void huge(std::uint16_t port) {
  const int fd = raw_connection(port);
  std::string header(caf::io::basp::header_size, '\0');
  header[0] = 1;  // a client's handshake
  for (std::size_t i = 4; i < 8; ++i) header[i] = '\xff';
  (void)!::write(fd, header.data(), header.size());
  char text[4096];
  pollfd ready{fd, POLLIN, 0};
  while (::poll(&ready, 1, 5000) == 1)
    if (::read(fd, text, sizeof text) <= 0) {
      std::cout << "closed" << std::endl;
      return;
    }
  std::cout << "open" << std::endl;
}

void flood(caf::scoped_actor& self, const caf::actor& target) {
  worker_report stop_reading{worker_failure{{7, 7}, "wait"}};
  self->send(target, stop_reading);
  heartbeat beat;
  beat.who = {7, 7};
  for (std::uint32_t i = 0; i < 3 * runtime::pending_per_peer_max; ++i) self->send(target, beat);
  ask(self, target, hello("after the flood"));
}

// Exits, errors, replies and messages of every wrong kind, without an answer to any.
void abuse(caf::scoped_actor& self, const caf::actor& target, const std::string& mode) {
  if (mode == "exit") self->send_exit(target, caf::exit_reason::user_shutdown);
  if (mode == "kill") self->send_exit(target, caf::exit_reason::kill);
  if (mode == "error") self->send(target, caf::make_error(caf::sec::runtime_error));
  if (mode == "cast") self->send(target, std::string("what"), 42);
  if (mode == "reply")
    target->enqueue(caf::actor_cast<caf::strong_actor_ptr>(self), caf::make_message_id(5).response_id(),
                    caf::make_message(welcome{term_number(9), 1}), nullptr);
  if (mode == "down") self->send(target, caf::down_msg{self->address(), caf::exit_reason::kill});
}

void remote_control(caf::actor_system& system, caf::scoped_actor& self, const caf::actor& target,
                    const std::string& mode) {
  if (mode == "spawn") {
    auto spawned =
        system.middleman().remote_spawn<caf::actor>(target.node(), "anything", caf::make_message(), 2s);
    std::cout << (spawned ? "spawned" : "refused") << std::endl;
  }
  if (mode == "config") {
    const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
    self->send(broker, caf::forward_atom_v, target.node(), caf::atom("ConfigServ"),
               caf::make_message(caf::put_atom_v, std::string("rogue"), caf::make_message(1)));
  }
}

wire::coordinator_actor::behavior_type service(
    runtime::hardened<wire::coordinator_actor, caf::unit_t>* self) {
  runtime::harden(self);
  return {[](const worker_hello&) {
            return welcome{term_number(2), 100};
          },
          [](const worker_report&) {},
          [](const heartbeat&) {},
          [](const node_hello&) {
            return welcome{term_number(2), 100};
          },
          [](const node_heartbeat&) {},
          [](const child_exit&) {},
          [](const node_notice&) {},
          [](const challenge_request&) { return role_challenge{}; }};
}

std::string content_of(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Without the checks of load_identity, which no rogue makes.
tls::identity_ptr read_identity(const std::string& folder, const std::string& as) {
  auto id = std::make_shared<tls::identity>();
  id->ca_file = folder + "/ca.pem";
  id->certificate_file = folder + "/" + as + ".pem";
  id->key_file = folder + "/" + as + ".key";
  id->ca = content_of(id->ca_file);
  id->certificate = content_of(id->certificate_file);
  id->key = content_of(id->key_file);
  return id;
}

// The whole of a worker's hello, with whatever certificate.
void introduce(caf::scoped_actor& self, const caf::actor& target, const tls::identity& identity) {
  auto h = hello("rogue");
  const challenge_request asked{h.who, tls::fresh_nonce()};
  std::string nonce;
  self->request(target, patience, asked)
      .receive([&](const role_challenge& c) { nonce = c.nonce; },
               [&](const caf::error& e) { std::cout << self->system().render(e) << std::endl; });
  h.proof = tls::prove(identity, tls::hello_text(h.who, nonce, wire::encode_message(h)));
  ask(self, target, h);
}

result<caf::actor> reach(caf::actor_system& system, std::uint16_t port) {
  result<caf::actor> reached = error{errc::timeout, "cannot connect: no answer"};
  caf::scoped_actor self{system};
  self->request(runtime::connector(system), patience, caf::connect_atom_v, std::string("127.0.0.1"), port)
      .receive(
          [&](const caf::node_id&, const caf::strong_actor_ptr& a, const std::set<std::string>&) {
            if (a) reached = caf::actor_cast<caf::actor>(a);
          },
          [&](const caf::error& e) {
            reached = error{errc::unavailable, "cannot connect: " + system.render(e)};
          });
  return reached;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 5) return 2;
  const auto port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  const std::string mode = argv[2];
  if (mode == "garbage") return garbage(port), 0;
  if (mode == "huge") return huge(port), 0;

  const auto identity = argc == 5 ? read_identity(argv[3], argv[4]) : tls::identity_ptr{};
  runtime::actor_process process(identity);
  auto& system = process.system();
  if (mode == "serve") {
    const auto actor = system.spawn(service);
    const auto bound = runtime::publish(system, actor, {"127.0.0.1", port});
    std::cout << (bound ? std::to_string(*bound) : bound.failure().message) << std::endl;
    ::pause();
  }
  const auto connected = reach(system, port);
  if (!connected) {
    std::cout << connected.failure().message << std::endl;
    std::_Exit(3);
  }
  const auto& target = *connected;
  caf::scoped_actor self{system};
  if (mode == "hello") introduce(self, target, *identity);
  if (mode == "unproven") ask(self, target, hello("rogue"));
  if (mode == "impostor") {
    heartbeat beat;
    beat.who = {7, 7};
    self->send(target, beat);
    ask(self, target, hello("rogue"));
  }
  if (identity) std::_Exit(0);
  if (mode == "hang") {
    ask(self, target, hello("hanging"));
    ::pause();
  }
  if (mode == "request") {
    ask(self, target, std::string("what"), 42);
  } else if (mode == "throw") {
    ask(self, target, hello("throw"));
  } else if (mode == "flood") {
    flood(self, target);
  } else {
    remote_control(system, self, target, mode);
    abuse(self, target, mode);
    // Messages of one connection arrive in order, so this one comes after the abuse.
    if (mode != "spawn") ask(self, target, hello("afterwards"));
  }
  // Nothing of ours is worth waiting for.
  std::_Exit(0);
}
