// Links over TLS: who is let in, and that those who are not are named in the log.
#include <doctest/doctest.h>
#include <openssl/ssl.h>

#include <thread>

#include "actors/tls/openssl.hpp"
#include "actors/transport/tcp_links.hpp"
#include "chaos/proc/proxy.hpp"
#include "tests/unit/captured_log.hpp"
#include "tests/unit/certificates.hpp"
#include "tests/unit/link_fixture.hpp"

using namespace perdura;
using namespace perdura::transport;
using namespace perdura::transport::test;
using perdura::test::authority;
using perdura::test::captured_log;
using tls::role;

namespace {

const incarnation low{0, 1};
const incarnation high{0, 3};

struct side {
  side(const incarnation& self, tls::identity_ptr identity) : self(self) {
    tcp_options o;
    o.self = self;
    o.tls = std::move(identity);
    auto made = make_tcp_links(o, seen.events());
    REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.failure().message));
    links = std::move(*made);
  }
  peer as_peer() const { return {self, links->local()}; }
  incarnation self;
  recorder seen;
  std::unique_ptr<transport::links> links;
};

void name(side& a, side& b) {
  a.links->set_peers({b.as_peer()});
  b.links->set_peers({a.as_peer()});
}

// The lower one dials: each of the two is turned away by the other side once.
void check_refused(const tls::identity_ptr& good, const tls::identity_ptr& bad, const char* why) {
  {
    captured_log log;
    side a(low, bad), b(high, good);
    name(a, b);
    CHECK_MESSAGE(log.says("refused a connection from"), "acceptor");
    CHECK_MESSAGE(log.says(why), why);
    CHECK(a.seen.count(happening::kind::up) == 0);
    CHECK(b.seen.count(happening::kind::up) == 0);
  }
  captured_log log;
  side a(low, good), b(high, bad);
  name(a, b);
  CHECK_MESSAGE(log.says("no link to " + short_name(high)), "dialer");
  CHECK_MESSAGE(log.says(why), why);
  CHECK(a.seen.count(happening::kind::up) == 0);
}

// A peer by OpenSSL itself: shakes hands as far as it gets.
void shake_hands(const endpoint& at, const tls::identity_ptr& identity, int version_max) {
  using context_ptr = std::unique_ptr<SSL_CTX, tls::freed_by<SSL_CTX_free>>;
  using ssl_ptr = std::unique_ptr<SSL, tls::freed_by<SSL_free>>;
  const context_ptr context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_security_level(context.get(), 0);  // or it would not even offer TLS 1.1
  SSL_CTX_set_max_proto_version(context.get(), version_max);
  if (identity) {
    SSL_CTX_use_certificate(context.get(), tls::read_certificate(identity->certificate).get());
    SSL_CTX_use_PrivateKey(context.get(), tls::read_key(identity->key).get());
  }
  auto socket = raw_socket::dial(at);
  const ssl_ptr ssl(SSL_new(context.get()));
  SSL_set_fd(ssl.get(), socket.descriptor());
  char byte = 0;
  if (SSL_connect(ssl.get()) == 1) SSL_read(ssl.get(), &byte, 1);
}

}  // namespace

TEST_CASE("over TLS messages of all sizes arrive whole, in order, both ways") {
  const authority ca;
  side a(low, ca.identity(role::worker, "a")), b(high, ca.identity(role::worker, "b"));
  name(a, b);
  REQUIRE(a.seen.up().has_value());
  REQUIRE(b.seen.up().has_value());
  std::uint64_t seed = 1;
  for (const std::size_t body : {std::size_t{0}, std::size_t{1}, std::size_t{16384}, piece_bytes_max + 1,
                                 std::size_t{5} << 20, body_bytes_max}) {
    for (auto* from : {&a, &b}) {
      auto* to = from == &a ? &b : &a;
      const auto sent = make_message(1 + body % 97, body, ++seed);
      auto copy = sent;
      REQUIRE(from->links->send(to->self, std::move(copy)) == send_status::queued);
      const auto got = to->seen.received();
      REQUIRE(got.has_value());
      CHECK(same(got->content, sent));
    }
  }
}

TEST_CASE("with certificates links may leave loopback") {
  const authority ca;
  recorder seen;
  tcp_options o;
  o.self = low;
  o.host = "0.0.0.0";
  CHECK(make_tcp_links(o, seen.events()).failure().message.find("set tls_folder") != std::string::npos);
  o.tls = ca.identity(role::worker);
  CHECK(make_tcp_links(o, seen.events()).has_value());
}

TEST_CASE("a worker of another cluster gets no link") {
  const authority ca, other;
  check_refused(ca.identity(role::worker), other.identity(role::worker), "certificate");
}

TEST_CASE("whoever is no worker gets no link") {
  const authority ca;
  check_refused(ca.identity(role::worker), ca.identity(role::node, "n"),
                "it shows the certificate of node n, not of a worker");
}

TEST_CASE("an expired certificate makes no link") {
  const authority ca;
  check_refused(ca.identity(role::worker), ca.expired(role::worker), "certificate has expired");
}

TEST_CASE("a plain peer and one with TLS make no link, and both logs say so") {
  const authority ca;
  check_refused(ca.identity(role::worker), nullptr, "no TLS handshake");
}

TEST_CASE("garbage on a port with TLS is refused, and the next is served") {
  const authority ca;
  captured_log log;
  side b(high, ca.identity(role::worker));
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    auto s = raw_socket::dial(b.links->local());
    const auto bytes = pattern(seed % 2 == 0 ? 5 : 20000, seed);
    s.send(bytes);
    if (seed % 2 != 0) CHECK(s.is_closed_by_peer());
  }
  CHECK(log.says("refused a connection from 127.0.0.1"));
  side a(low, ca.identity(role::worker));
  name(a, b);
  CHECK(a.seen.up().has_value());
}

TEST_CASE("TLS older than 1.2 is refused") {
  const authority ca;
  captured_log log;
  side b(high, ca.identity(role::worker));
  shake_hands(b.links->local(), ca.identity(role::worker), TLS1_1_VERSION);
  CHECK(log.says("no TLS handshake: unsupported protocol"));
}

TEST_CASE("a peer without a certificate is refused") {
  const authority ca;
  captured_log log;
  side b(high, ca.identity(role::worker));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) shake_hands(b.links->local(), nullptr, version);
  CHECK(log.says("peer did not return a certificate"));
}

TEST_CASE(
    "over a long and lossy line that breaks messages keep their order, and what comes after is complete") {
  const authority ca;
  side a(low, ca.identity(role::worker, "a")), b(high, ca.identity(role::worker, "b"));
  chaos::proxy line(b.links->local(), {.delay = 5ms, .loss = 0.1, .again = 20ms, .seed = 5});
  a.links->set_peers({{high, line.local()}});
  b.links->set_peers({a.as_peer()});
  for (std::uint64_t round = 0; round < 3; ++round) {
    REQUIRE(a.seen.up().has_value());
    for (std::uint64_t i = 0; i < 20; ++i)
      REQUIRE(a.links->send(high, make_message(9, 50000, round * 100 + i)) == send_status::queued);
    for (std::uint64_t i = 0; i < 20; ++i) {
      const auto got = b.seen.received();
      REQUIRE(got.has_value());
      CHECK(same(got->content, make_message(9, 50000, round * 100 + i)));
    }
    line.break_all();
    CHECK(a.seen.down().has_value());
  }
  CHECK(line.lost() > 0);
}
