#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "actors/base/log.hpp"
#include "actors/transport/tcp_links.hpp"
#include "tests/unit/captured_log.hpp"
#include "tests/unit/link_fixture.hpp"

using namespace perdura;
using namespace perdura::transport;
using namespace perdura::transport::test;
using kind = happening::kind;
using perdura::test::captured_log;

namespace {

const incarnation low{0, 1};
const incarnation middle{0, 2};
const incarnation high{0, 3};

tcp_options options_of(const incarnation& self) {
  tcp_options o;
  o.self = self;
  o.cookie = "test";
  return o;
}

struct side {
  explicit side(const incarnation& self) : side(options_of(self)) {}
  explicit side(const tcp_options& o) : self(o.self), links(make_tcp_links(o, seen.events()).value()) {}
  peer as_peer() const { return {self, links->local()}; }
  incarnation self;
  recorder seen;
  std::unique_ptr<transport::links> links;
};

struct couple {
  couple() { REQUIRE(link()); }
  couple(tcp_options first, tcp_options second) : a(first), b(second) { REQUIRE(link()); }
  bool link() {
    a.links->set_peers({b.as_peer()});
    b.links->set_peers({a.as_peer()});
    return a.seen.up().has_value() && b.seen.up().has_value();
  }
  side a{low};
  side b{high};
};

// A side that names `low`, and a bare socket that is `low`.
struct raw_couple {
  explicit raw_couple(tcp_options o = options_of(high)) : real(o) {
    real.links->set_peers({{low, {"127.0.0.1", 1}}});
    // The order reaches the links' thread before the first connection does.
    auto s = connect_raw(real.links->local(), low, o.self, "test");
    REQUIRE(s.has_value());
    raw = std::make_unique<raw_socket>(std::move(*s));
    REQUIRE(real.seen.up().has_value());
  }
  side real;
  std::unique_ptr<raw_socket> raw;
};

send_status send_numbered(links& l, const incarnation& to, std::uint64_t n, std::size_t body) {
  message m = make_message(0, body, n);
  m.head.resize(sizeof n);
  std::memcpy(m.head.data(), &n, sizeof n);
  return l.send(to, std::move(m));
}

std::uint64_t number_of(const message& m) {
  std::uint64_t n = ~std::uint64_t{0};
  if (m.head.size() == sizeof n) std::memcpy(&n, m.head.data(), sizeof n);
  return n;
}

}  // namespace

TEST_CASE("messages of all sizes arrive whole, in order, both ways") {
  couple t;
  const std::size_t p = piece_bytes_max;
  std::vector<message> sent;
  for (std::size_t head : {0, 1, 200})
    for (std::size_t body : {std::size_t{0}, std::size_t{1}, p - 1, p, p + 1, 3 * p + 17})
      sent.push_back(make_message(head, body, sent.size()));
  sent.push_back(make_message(head_bytes_max, body_bytes_max, 99));
  for (const auto& m : sent) {
    CHECK(t.a.links->send(high, message(m)) == send_status::queued);
    CHECK(t.b.links->send(low, message(m)) == send_status::queued);
  }
  for (const auto& m : sent) {
    const auto at_b = t.b.seen.received();
    REQUIRE(at_b);
    CHECK(at_b->peer == low);
    CHECK(same(at_b->content, m));
    const auto at_a = t.a.seen.received();
    REQUIRE(at_a);
    CHECK(same(at_a->content, m));
  }
}

TEST_CASE("a sent body is let go once it has left") {
  couple t;
  auto owner = std::make_shared<std::vector<std::byte>>(pattern(1000, 1));
  std::weak_ptr<std::vector<std::byte>> watched = owner;
  const std::byte* data = owner->data();
  CHECK(t.a.links->send(high, message{{}, blob(std::move(owner), data, 1000)}) == send_status::queued);
  REQUIRE(t.b.seen.received());
  CHECK(t.a.links->send(high, make_message(1, 0, 1)) == send_status::queued);
  REQUIRE(t.b.seen.received());
  t.a.links->close();
  CHECK(watched.expired());
}

TEST_CASE("binding to more than loopback is refused with the reason") {
  recorder seen;
  tcp_options o = options_of(low);
  for (const char* host : {"0.0.0.0", "192.0.2.1", "::"}) {
    o.host = host;
    const auto made = make_tcp_links(o, seen.events());
    REQUIRE_FALSE(made.has_value());
    CHECK(made.failure().code == errc::refused);
    CHECK(made.failure().message.find("certificates") != std::string::npos);
  }
  o.host = "nonsense";
  CHECK(make_tcp_links(o, seen.events()).failure().code == errc::invalid_argument);
}

TEST_CASE("a taken port and options out of range are errors") {
  side a(low);
  recorder seen;
  tcp_options o = options_of(high);
  o.port = a.links->local().port;
  CHECK(make_tcp_links(o, seen.events()).failure().code == errc::io);
  const auto refused = [&](auto change) {
    tcp_options bad = options_of(low);
    change(bad);
    const auto made = make_tcp_links(bad, seen.events());
    return !made && made.failure().code == errc::invalid_argument;
  };
  CHECK(refused([](tcp_options& x) { x.self = {}; }));
  CHECK(refused([](tcp_options& x) { x.send_queue_bytes = 0; }));
  CHECK(refused([](tcp_options& x) { x.redial_max = x.redial_first - 1ms; }));
  CHECK(refused([](tcp_options& x) { x.handshake_timeout = 0ms; }));
  CHECK(refused([](tcp_options& x) { x.parked_max = 0; }));
}

TEST_CASE("a peer off loopback is not dialed, and the log says why") {
  captured_log log;
  side a(low);
  a.links->set_peers({{high, {"192.0.2.1", 7}}});
  CHECK(log.says("only loopback is allowed"));
}

TEST_CASE("it does not matter which side is told first") {
  SUBCASE("the dialer") {
    side a(low);
    side b(high);
    a.links->set_peers({b.as_peer()});
    CHECK_FALSE(a.seen.next(kind::up, 30ms));
    b.links->set_peers({a.as_peer()});
    CHECK(a.seen.up());
    CHECK(b.seen.up());
  }
  SUBCASE("the acceptor") {
    side a(low);
    side b(high);
    b.links->set_peers({a.as_peer()});
    CHECK_FALSE(b.seen.next(kind::up, 30ms));
    a.links->set_peers({b.as_peer()});
    CHECK(a.seen.up());
    CHECK(b.seen.up());
  }
}

TEST_CASE("links outlive changes of the others") {
  couple t;
  side c(middle);
  t.a.links->set_peers({t.b.as_peer(), c.as_peer()});
  t.b.links->set_peers({t.a.as_peer(), c.as_peer()});
  c.links->set_peers({t.a.as_peer(), t.b.as_peer()});
  CHECK(c.seen.up());
  CHECK(c.seen.up());
  c.links->close();
  CHECK(t.a.seen.down()->peer == middle);
  CHECK(t.b.seen.down()->peer == middle);
  t.a.links->set_peers({t.b.as_peer()});
  t.b.links->set_peers({t.a.as_peer()});
  CHECK(t.a.links->send(high, make_message(3, 3, 3)) == send_status::queued);
  CHECK(t.b.seen.received());
  CHECK(t.a.seen.count(kind::down) == 1);
}

TEST_CASE("a link to a peer that is no longer named is closed, and made again when it is named again") {
  couple t;
  t.b.links->set_peers({});
  const auto at_a = t.a.seen.down();
  const auto at_b = t.b.seen.down();
  REQUIRE(at_a);
  REQUIRE(at_b);
  CHECK(t.b.links->send(low, make_message(1, 1, 1)) == send_status::not_connected);
  t.b.links->set_peers({t.a.as_peer()});
  const auto again = t.a.seen.up();
  REQUIRE(again);
  CHECK(again->session > at_a->session);
  CHECK(t.a.links->send(high, at_a->session, make_message(1, 1, 1)) == send_status::not_connected);
  CHECK(t.a.links->send(high, again->session, make_message(1, 1, 1)) == send_status::queued);
}

TEST_CASE("the end of a peer's process breaks the link, after what it had sent") {
  raw_couple t;
  REQUIRE(t.raw->send(make_message(5, 300'000, 1)));
  SUBCASE("in order") { t.raw->close(); }
  SUBCASE("in the middle of a message") {
    auto h = piece_header{.head_bytes = 0, .body_bytes = 100, .index = 0, .header_check = 0, .checksum = 0};
    h.header_check = header_check(1, h);
    REQUIRE(t.raw->send(std::span<const std::byte>(encode(h))));
    t.raw->close();
  }
  const auto got = t.real.seen.received();
  REQUIRE(got);
  CHECK(same(got->content, make_message(5, 300'000, 1)));
  CHECK(t.real.seen.down());
  CHECK(t.real.links->send(low, make_message(1, 1, 1)) == send_status::not_connected);
}

TEST_CASE("a reset connection breaks the link with a reason") {
  raw_couple t;
  t.raw->reset();
  const auto down = t.real.seen.down();
  REQUIRE(down);
  CHECK(down->why.find("process ended") != std::string::npos);
}

TEST_CASE("a newer connection of the same peer takes the old one's place, the old one reported down first") {
  raw_couple t;
  auto newer = connect_raw(t.real.links->local(), low, high, "test");
  REQUIRE(newer);
  const auto second = t.real.seen.up();
  REQUIRE(second);
  const auto all = t.real.seen.all();
  REQUIRE(all.size() == 3);
  CHECK(all[1].what == kind::down);
  CHECK(all[1].session == all[0].session);
  CHECK(all[2].session > all[0].session);
  CHECK(t.raw->is_closed_by_peer());
  CHECK(newer->send(make_message(1, 1, 1)));
  CHECK(t.real.seen.received()->session == second->session);
}

TEST_CASE("a dial that reaches another incarnation makes no link and says which it found") {
  captured_log log;
  side a(low);
  side stranger(middle);
  a.links->set_peers({{high, stranger.links->local()}});
  stranger.links->set_peers({a.as_peer()});
  CHECK(log.says("another process listens there now: " + short_name(middle)));
  CHECK(a.seen.all().empty());
  CHECK(stranger.seen.all().empty());
}

TEST_CASE("a peer that moved is found at its new place") {
  side a(low);
  side old_tenant(middle);
  a.links->set_peers({{high, old_tenant.links->local()}});
  side b(high);
  b.links->set_peers({a.as_peer()});
  a.links->set_peers({b.as_peer()});
  CHECK(a.seen.up());
}

TEST_CASE("other versions are refused, and the log names both") {
  captured_log log;
  side real(high);
  real.links->set_peers({{low, {}}});
  greeting hello = handshake::of_dialer(low, high, "test", nonce{}).hello();
  SUBCASE("of the transport") {
    hello.transport = 41;
    auto raw = raw_socket::dial(real.links->local());
    REQUIRE(raw.send(hello));
    CHECK(raw.receive_greeting()->reason == refusal_reason::version);
    CHECK(raw.is_closed_by_peer());
    CHECK(log.says("it speaks transport version 41"));
    CHECK(log.says("this process transport version " + std::to_string(transport_version)));
  }
  SUBCASE("of the protocol") {
    hello.protocol = 42;
    auto raw = raw_socket::dial(real.links->local());
    REQUIRE(raw.send(hello));
    CHECK(raw.receive_greeting()->reason == refusal_reason::version);
    CHECK(log.says("protocol version 42, this process"));
  }
  CHECK(real.seen.all().empty());
}

TEST_CASE("clusters with different cookies do not link") {
  captured_log log;
  tcp_options other = options_of(high);
  other.cookie = "another";
  side a(low);
  side b(other);
  a.links->set_peers({b.as_peer()});
  b.links->set_peers({a.as_peer()});
  CHECK(log.says("it belongs to a cluster with another cookie"));
  CHECK_FALSE(connect_raw(b.links->local(), low, high, "test"));
  CHECK(a.seen.all().empty());
  CHECK(b.seen.all().empty());
}

TEST_CASE("a full queue says so, keeps the message with the caller, and tells when there is room") {
  tcp_options o = options_of(high);
  o.send_queue_bytes = 1U << 20;
  raw_couple t(o);
  constexpr std::size_t body = 200'000;
  std::uint64_t queued = 0;
  message m = make_message(1, body, 5);
  while (t.real.links->send(low, message(m)) == send_status::queued) ++queued;
  CHECK(queued >= o.send_queue_bytes / body);
  // The system may take more now, but not for long: nobody reads.
  message refused = m;
  while (t.real.links->send(low, std::move(refused)) == send_status::queued) {
    ++queued;
    refused = m;
  }
  CHECK(same(refused, m));

  message_reader reader;
  std::uint64_t got = 0;
  while (got < queued) {
    std::size_t n = 0;
    for (auto target : reader.targets())
      if (n == 0 && !target.empty()) n = t.raw->receive_some(target);
    REQUIRE(n > 0);
    REQUIRE(reader.advance(n, [&](const message& arrived) { got += same(arrived, m) ? 1 : 0; }).has_value());
  }
  do {
    REQUIRE(t.real.seen.writable());
  } while (t.real.links->send(low, std::move(refused)) == send_status::would_block);
}

TEST_CASE("a wrong checksum breaks the link with the reason, and nothing of the message is delivered") {
  raw_couple t;
  message_writer writer;
  writer.push(make_message(10, 1000, 1));
  std::vector<std::byte> bytes;
  while (!writer.pending().empty()) {
    const auto part = writer.pending().front();
    bytes.insert(bytes.end(), part.begin(), part.end());
    writer.advance(part.size());
  }
  bytes[bytes.size() - 7] ^= std::byte{1};
  REQUIRE(t.raw->send(std::span<const std::byte>(bytes)));
  const auto down = t.real.seen.down();
  REQUIRE(down);
  CHECK(down->why.find("checksum") != std::string::npos);
  CHECK(t.real.seen.count(kind::received) == 0);
  CHECK(t.raw->is_closed_by_peer());
}

TEST_CASE("a huge length breaks the link with the reason") {
  raw_couple t;
  piece_header h{.head_bytes = 8, .body_bytes = 0xfffffff0, .index = 0, .header_check = 0, .checksum = 0};
  h.header_check = header_check(0, h);
  REQUIRE(t.raw->send(std::span<const std::byte>(encode(h))));
  const auto down = t.real.seen.down();
  REQUIRE(down);
  CHECK(down->why.find("above the limit") != std::string::npos);
}

TEST_CASE("garbage on the port hurts nobody") {
  captured_log log;
  couple t;
  const endpoint port = t.b.links->local();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    auto raw = raw_socket::dial(port);
    REQUIRE(raw.is_open());
    raw.send(std::span<const std::byte>(pattern(1 + seed * 37, seed)));
    if (seed % 3 == 0) raw.reset();
    // Shorter than a greeting: it waits for more, until the deadline.
    if (seed % 3 == 1 && 1 + seed * 37 >= greeting_bytes) CHECK(raw.is_closed_by_peer());
  }
  auto in_phases = raw_socket::dial(port);
  const auto hello = encode(handshake::of_dialer(low, high, "test", nonce{}).hello());
  for (std::size_t i = 0; i < hello.size(); i += 8) in_phases.send(std::span(hello).subspan(i, 8));
  CHECK(in_phases.receive_greeting()->kind == greeting_kind::challenge);
  in_phases.send(std::span<const std::byte>(pattern(greeting_bytes, 5)));
  CHECK(in_phases.is_closed_by_peer());

  CHECK(t.a.links->send(high, make_message(10, 10, 1)) == send_status::queued);
  CHECK(t.b.seen.received());
  CHECK(t.b.seen.count(kind::down) == 0);
}

TEST_CASE("who does not shake hands in time is closed") {
  captured_log log;
  tcp_options o = options_of(high);
  o.handshake_timeout = 50ms;
  side real(o);
  auto silent = raw_socket::dial(real.links->local());
  auto slow = raw_socket::dial(real.links->local());
  slow.send(std::span<const std::byte>(encode(handshake::of_dialer(low, high, "test", nonce{}).hello())));
  CHECK(slow.receive_greeting()->kind == greeting_kind::challenge);
  CHECK(silent.is_closed_by_peer());
  CHECK(slow.is_closed_by_peer());
  CHECK(log.says("no handshake within 50 ms"));
}

TEST_CASE("a dial to a port that answers nothing ends and is tried again") {
  captured_log log;
  raw_socket listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  side a([] {
    tcp_options o = options_of(low);
    o.handshake_timeout = 30ms;
    o.parking_timeout = 30ms;
    return o;
  }());
  // A backlog that nobody accepts from: connections come up, and no word.
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  REQUIRE(::bind(descriptor, reinterpret_cast<sockaddr*>(&where), size) == 0);
  REQUIRE(::listen(descriptor, 16) == 0);
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&where), &size);
  a.links->set_peers({{high, {"127.0.0.1", ntohs(where.sin_port)}}});
  CHECK(log.says("no connection or handshake within 60 ms"));
  ::close(descriptor);
  CHECK(log.says("cannot connect"));
  CHECK(a.seen.all().empty());
}

TEST_CASE("connections that are no links yet are bounded, the oldest goes first") {
  captured_log log;
  tcp_options o = options_of(high);
  o.handshakes_max = 4;
  side real(o);
  std::vector<raw_socket> idle;
  for (int i = 0; i < 5; ++i) idle.push_back(raw_socket::dial(real.links->local()));
  CHECK(idle.front().is_closed_by_peer());
  real.links->set_peers({{low, {}}});
  CHECK(connect_raw(real.links->local(), low, high, "test"));
}

TEST_CASE("peers that wait to be named are bounded in number and time") {
  captured_log log;
  tcp_options o = options_of(high);
  o.parked_max = 2;
  SUBCASE("number") {
    side real(o);
    auto first = introduce(real.links->local(), {0, 1}, high, "test");
    auto second = introduce(real.links->local(), {0, 2}, high, "test");
    REQUIRE(first);
    REQUIRE(second);
    // The same one again takes its own place, not another's.
    auto second_again = introduce(real.links->local(), {0, 2}, high, "test");
    CHECK(second->is_closed_by_peer());
    auto third = introduce(real.links->local(), {0, 1}, high, "test");
    CHECK(first->is_closed_by_peer());
    real.links->set_peers({{{0, 2}, {}}});
    CHECK(second_again->receive_greeting()->kind == greeting_kind::welcome);
  }
  SUBCASE("time") {
    o.parking_timeout = 30ms;
    side real(o);
    auto first = introduce(real.links->local(), {0, 1}, high, "test");
    REQUIRE(first);
    CHECK(first->is_closed_by_peer());
    CHECK(log.says("no order to hold a link to it within 30 ms"));
  }
  SUBCASE("and who goes away meanwhile is forgotten") {
    side real(o);
    auto first = introduce(real.links->local(), {0, 1}, high, "test");
    REQUIRE(first);
    first->close();
    CHECK(log.says("while it waited to be named"));
  }
}

TEST_CASE("many threads send at once, and each finds its order kept") {
  couple t;
  constexpr std::uint64_t threads = 4;
  constexpr std::uint64_t each = 300;
  std::vector<std::thread> senders;
  for (std::uint64_t k = 0; k < threads; ++k)
    senders.emplace_back([&, k] {
      for (std::uint64_t i = 0; i < each; ++i)
        while (send_numbered(*t.a.links, high, k * each + i, i % 3 == 0 ? 40'000 : 10) != send_status::queued)
          std::this_thread::yield();
    });
  for (auto& s : senders) s.join();
  std::uint64_t next[threads] = {};
  for (std::uint64_t i = 0; i < threads * each; ++i) {
    const auto got = t.b.seen.received();
    REQUIRE(got);
    const std::uint64_t n = number_of(got->content);
    REQUIRE(n < threads * each);
    CHECK(n % each == next[n / each]++);
  }
}

TEST_CASE("events may send") {
  recorder seen;
  auto events = seen.events();
  std::unique_ptr<links> echo;
  events.received = [&](incarnation from, std::uint64_t session, message m) {
    echo->send(from, session, std::move(m));
  };
  echo = make_tcp_links(options_of(high), std::move(events)).value();
  side a(low);
  a.links->set_peers({{high, echo->local()}});
  echo->set_peers({a.as_peer()});
  REQUIRE(a.seen.up());
  for (std::uint64_t n = 0; n < 50; ++n) {
    CHECK(send_numbered(*a.links, high, n, 100) == send_status::queued);
    CHECK(number_of(a.seen.received()->content) == n);
  }
  a.links->close();
  echo->close();
}

TEST_CASE("no event comes after close, whoever talks meanwhile") {
  for (int round = 0; round < 10; ++round) {
    couple t;
    std::atomic<bool> stop{false};
    std::thread talker([&] {
      while (!stop) send_numbered(*t.a.links, high, 1, 1000);
    });
    REQUIRE(t.b.seen.received());
    std::thread other([&] { t.b.links->close(); });
    t.b.links->close();
    const auto heard = t.b.seen.all().size();
    t.b.links->set_peers({});
    CHECK(t.b.links->send(low, make_message(1, 1, 1)) == send_status::not_connected);
    CHECK(t.a.seen.down());
    CHECK(t.b.seen.all().size() == heard);
    t.b.links->close();
    other.join();
    stop = true;
    talker.join();
  }
}

TEST_CASE("a peer that vanishes and comes back as another incarnation is linked anew") {
  couple t;
  t.b.links->close();
  REQUIRE(t.a.seen.down());
  side again(incarnation{0, 4});
  t.a.links->set_peers({again.as_peer()});
  again.links->set_peers({t.a.as_peer()});
  const auto up = t.a.seen.up();
  REQUIRE(up);
  CHECK(up->peer == incarnation{0, 4});
}
