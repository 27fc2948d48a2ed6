// The admin RPC over TLS: admins are let in, nobody else, and the log names those who are not.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "coordinator/admin/client.hpp"
#include "coordinator/admin/server.hpp"
#include "tests/unit/captured_log.hpp"
#include "tests/unit/certificates.hpp"
#include "tests/unit/fake_admin_service.hpp"

using namespace perdura;
using namespace perdura::admin;
using test::authority;
using test::captured_log;
using tls::role;
using namespace std::chrono_literals;

namespace {

struct fixture {
  explicit fixture(role as = role::coordinator, server_options options = {}) {
    options.port = 0;
    options.tls = ca.identity(as);
    auto started = server::start(service, options);
    REQUIRE_MESSAGE(started.has_value(), (started ? "" : started.failure().message));
    admin = std::move(*started);
  }
  result<std::unique_ptr<admin_api>> connect_as(tls::identity_ptr identity) const {
    client_options options;
    options.tls = std::move(identity);
    return admin::connect("127.0.0.1", admin->port(), options);
  }
  std::string refusal_of(tls::identity_ptr identity) const {
    const auto client = connect_as(std::move(identity));
    REQUIRE_FALSE(client.has_value());
    return client.failure().message;
  }

  authority ca;
  fake_admin_service service;
  std::unique_ptr<server> admin;
};

int raw_connection(std::uint16_t port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
  const timeval patience{20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  return fd;
}

bool is_closed_by_peer(int fd) {
  char bytes[256];
  ssize_t n = 1;
  while ((n = ::recv(fd, bytes, sizeof bytes, 0)) > 0) {}
  return n == 0 || errno == ECONNRESET;
}

}  // namespace

TEST_CASE("over TLS an admin is served") {
  const fixture f;
  auto client = f.connect_as(f.ca.identity(role::admin, "eve"));
  REQUIRE_MESSAGE(client.has_value(), (client ? "" : client.failure().message));
  CHECK((*client)->status().has_value());
  CHECK((*client)->workers().has_value());
}

TEST_CASE("with certificates the admin port may leave loopback") {
  server_options options;
  options.host = "0.0.0.0";
  const fixture f(role::coordinator, options);
  CHECK(f.connect_as(f.ca.identity(role::admin)).has_value());
}

TEST_CASE("whoever is no admin is refused and named") {
  const fixture f;
  captured_log log;
  CHECK(f.refusal_of(f.ca.identity(role::worker, "w")).find("an admin's certificate") != std::string::npos);
  CHECK(log.says("admin: refused a client from 127.0.0.1"));
  CHECK(log.says("it shows the certificate of perdura://worker/w, not of an admin"));
}

TEST_CASE("an admin of another cluster is refused, and refuses") {
  const fixture f;
  const authority other;
  captured_log log;
  CHECK(f.refusal_of(other.identity(role::admin)).find("no coordinator of this cluster") !=
        std::string::npos);
  CHECK(log.says("admin: refused a client from 127.0.0.1"));
}

TEST_CASE("an admin's expired certificate is refused and named") {
  const fixture f;
  captured_log log;
  f.refusal_of(f.ca.expired(role::admin));
  CHECK(log.says("admin: refused a client from 127.0.0.1"));
  CHECK(log.says("certificate verify failed"));
}

TEST_CASE("an admin does not talk to a coordinator's port that another role holds") {
  const fixture f(role::worker);
  CHECK(f.refusal_of(f.ca.identity(role::admin)).find("no coordinator of this cluster") != std::string::npos);
}

TEST_CASE("a client without TLS is refused and told what to do") {
  const fixture f;
  captured_log log;
  CHECK(f.refusal_of(nullptr).find("set tls_folder") != std::string::npos);
  CHECK(log.says("admin: refused a client from 127.0.0.1"));
}

TEST_CASE("garbage before TLS ends that connection alone") {
  const fixture f;
  captured_log log;
  const int fd = raw_connection(f.admin->port());
  const std::string garbage(3000, '\x5a');
  REQUIRE(::send(fd, garbage.data(), garbage.size(), MSG_NOSIGNAL) > 0);
  CHECK(is_closed_by_peer(fd));
  ::close(fd);
  CHECK(log.says("admin: refused a client from 127.0.0.1"));
  CHECK(f.connect_as(f.ca.identity(role::admin)).has_value());
}

TEST_CASE("who does not shake hands in time, or one too many, is closed") {
  server_options options;
  options.login_max = 200ms;
  options.connections_max = 2;
  const fixture f(role::coordinator, options);
  captured_log log;
  const int first = raw_connection(f.admin->port());
  const int second = raw_connection(f.admin->port());
  const int third = raw_connection(f.admin->port());
  CHECK(log.says("too many shake hands at once"));
  for (const int fd : {first, second, third}) {
    CHECK(is_closed_by_peer(fd));
    ::close(fd);
  }
  CHECK(f.connect_as(f.ca.identity(role::admin)).has_value());
}
