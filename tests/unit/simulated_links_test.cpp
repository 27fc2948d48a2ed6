#include "actors/transport/simulated_links.hpp"

#include <doctest/doctest.h>

#include "tests/unit/link_fixture.hpp"

using namespace perdura;
using namespace perdura::transport;
using namespace perdura::transport::test;
using kind = happening::kind;

namespace {

const incarnation a{0, 1};
const incarnation b{0, 2};
const incarnation c{0, 3};

message numbered(std::uint8_t n) { return {{std::byte{n}}, {}}; }

// Three processes, all of which name each other.
struct trio {
  explicit trio(std::uint64_t seed, simulated_options options = {}) : network(seed, options) {
    for (const auto& who : {a, b, c}) at[who].links = network.attach(who, at[who].seen.events());
    for (const auto& who : {a, b, c}) at[who].links->set_peers({{a, {}}, {b, {}}, {c, {}}});
  }
  struct side {
    recorder seen;
    std::unique_ptr<transport::links> links;
  };
  simulated_network network;
  std::map<incarnation, side> at;
};

// What `who` received from `from`, as numbers.
std::vector<int> numbers(trio& t, const incarnation& who, const incarnation& from) {
  std::vector<int> out;
  for (const auto& h : t.at[who].seen.all())
    if (h.what == kind::received && h.peer == from) out.push_back(std::to_integer<int>(h.content.head[0]));
  return out;
}

std::vector<std::pair<std::uint64_t, int>> arrivals(std::uint64_t seed) {
  trio t(seed);
  t.network.deliver_all();
  for (std::uint8_t n = 0; n < 20; ++n) {
    CHECK(t.at[a].links->send(c, numbered(n)) == send_status::queued);
    CHECK(t.at[b].links->send(c, numbered(n)) == send_status::queued);
  }
  t.network.deliver_all();
  std::vector<std::pair<std::uint64_t, int>> out;
  for (const auto& h : t.at[c].seen.all())
    if (h.what == kind::received) out.emplace_back(h.peer.low, std::to_integer<int>(h.content.head[0]));
  return out;
}

}  // namespace

TEST_CASE("simulated: the seed decides the order across links, and order is kept within one") {
  CHECK(arrivals(1) == arrivals(1));
  CHECK(arrivals(1) != arrivals(2));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    int next_of_a = 0;
    int next_of_b = 0;
    for (const auto& [from, n] : arrivals(seed)) CHECK(n == (from == a.low ? next_of_a++ : next_of_b++));
    CHECK(next_of_a == 20);
    CHECK(next_of_b == 20);
  }
}

TEST_CASE("simulated: nothing moves by itself, and a link needs both sides to name each other") {
  simulated_network network(1);
  recorder seen_a;
  recorder seen_b;
  auto link_a = network.attach(a, seen_a.events());
  auto link_b = network.attach(b, seen_b.events());
  link_a->set_peers({{b, link_b->local()}});
  CHECK(network.deliver_all() == 0);
  link_b->set_peers({{a, link_a->local()}});
  CHECK(seen_a.all().empty());
  CHECK(network.in_flight() == 2);
  CHECK(link_a->send(b, numbered(1)) == send_status::not_connected);
  CHECK(network.deliver_all() == 2);
  CHECK(seen_a.count(kind::up) == 1);
  CHECK(link_a->send(b, numbered(1)) == send_status::queued);
  link_b->set_peers({});
  network.deliver_all();
  CHECK(seen_a.count(kind::down) == 1);
  CHECK(seen_b.count(kind::down) == 1);
}

TEST_CASE("simulated: of what is in flight on a cut link a prefix arrives, of any length, then it is down") {
  std::set<std::size_t> lengths;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    trio t(seed);
    t.network.deliver_all();
    for (std::uint8_t n = 0; n < 5; ++n) CHECK(t.at[a].links->send(b, numbered(n)) == send_status::queued);
    t.network.cut(a, b);
    // a has not heard of it yet: what it says now is lost.
    CHECK(t.at[a].links->send(b, numbered(99)) == send_status::queued);
    t.network.deliver_all();
    const auto got = numbers(t, b, a);
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == static_cast<int>(i));
    lengths.insert(got.size());
    CHECK(t.at[b].seen.all().back().what == kind::down);
    CHECK(t.at[c].seen.count(kind::down) == 0);
    CHECK(t.at[a].links->send(b, numbered(1)) == send_status::not_connected);
  }
  CHECK(lengths == std::set<std::size_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("simulated: a healed link is a new session, and words for the old one are not taken") {
  trio t(3);
  t.network.deliver_all();
  const auto before = t.at[a].seen.up();
  t.network.cut(a, b);
  t.network.heal(a, b);
  t.network.deliver_all();
  std::vector<std::uint64_t> sessions;
  std::vector<kind> order;
  for (const auto& h : t.at[a].seen.all()) {
    if (h.peer != b) continue;
    order.push_back(h.what);
    sessions.push_back(h.session);
  }
  CHECK(order == std::vector{kind::up, kind::down, kind::up});
  CHECK(sessions[0] == sessions[1]);
  CHECK(sessions[2] > sessions[1]);
  CHECK(t.at[a].links->send(b, sessions[0], numbered(1)) == send_status::not_connected);
  CHECK(t.at[a].links->send(b, sessions[2], numbered(1)) == send_status::queued);
}

TEST_CASE("simulated: the dead hear nothing and all others learn of it") {
  trio t(4);
  t.network.deliver_all();
  const auto heard = t.at[b].seen.all().size();
  CHECK(t.at[a].links->send(b, numbered(1)) == send_status::queued);
  t.network.kill(b);
  t.network.deliver_all();
  CHECK(t.at[b].seen.all().size() == heard);
  CHECK(t.at[b].links->send(a, numbered(1)) == send_status::not_connected);
  CHECK(t.at[a].seen.count(kind::down) == 1);
  CHECK(t.at[c].seen.count(kind::down) == 1);
  CHECK(t.at[a].links->send(c, numbered(1)) == send_status::queued);
}

TEST_CASE("simulated: a full link says so, and when there is room again") {
  trio t(5, {.send_queue_bytes = 1000});
  t.network.deliver_all();
  message m = make_message(1, 600, 1);
  CHECK(t.at[a].links->send(b, std::move(m)) == send_status::queued);
  m = make_message(1, 600, 2);
  CHECK(t.at[a].links->send(b, std::move(m)) == send_status::would_block);
  CHECK(m.body.size() == 600);
  t.network.deliver_all();
  CHECK(t.at[a].seen.count(kind::writable) == 1);
  CHECK(t.at[a].links->send(b, std::move(m)) == send_status::queued);
}
