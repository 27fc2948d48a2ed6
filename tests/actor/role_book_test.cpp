// Who may speak for a life, where the cluster has certificates.
#include <doctest/doctest.h>

#include <caf/scoped_actor.hpp>

#include "coordinator/role_book.hpp"
#include "tests/actor/caf_fixture.hpp"
#include "tests/unit/captured_log.hpp"
#include "tests/unit/certificates.hpp"

using namespace perdura;
using coordinator::role_book;
using tls::role;

namespace {

struct fixture : test::caf_fixture {
  // As runtime::introduce does it.
  template <class Hello>
  result<void> introduce(const caf::scoped_actor& from, role as, Hello hello,
                         const tls::identity_ptr& shown) {
    const auto given = book.challenge(from->address(), {hello.who, tls::fresh_nonce()});
    if (!given) return given.failure();
    hello.proof = tls::prove(*shown, tls::hello_text(hello.who, given->nonce, wire::encode_message(hello)));
    last = hello.proof;
    return book.admit(from->address(), here, as, hello);
  }
  static worker_hello hello_of(const incarnation& who) {
    worker_hello h;
    h.who = who;
    h.name = "node-1/0";
    return h;
  }

  // Two processes of two machines.
  const caf::node_id here = *caf::make_node_id(1, std::string(40, 'a'));
  const caf::node_id there = *caf::make_node_id(2, std::string(40, 'b'));
  test::authority ca;
  role_book book{ca.identity(role::coordinator)};
  role_proof last;
  caf::scoped_actor first{system};
  caf::scoped_actor second{system};
};

void check_refused(const result<void>& r, const char* words) {
  REQUIRE_FALSE(r.has_value());
  CHECK(r.failure().code == errc::refused);
  CHECK_MESSAGE(r.failure().message.find(words) != std::string::npos, r.failure().message);
}

}  // namespace

TEST_CASE("a hello that proves its role binds its life to the connection") {
  fixture f;
  CHECK_FALSE(f.book.speaks_for(f.here, {1, 1}));
  const auto taken =
      f.introduce(f.first, role::worker, fixture::hello_of({1, 1}), f.ca.identity(role::worker, "a"));
  REQUIRE_MESSAGE(taken.has_value(), (taken ? "" : taken.failure().message));
  CHECK(f.book.speaks_for(f.here, {1, 1}));
  CHECK_FALSE(f.book.speaks_for(f.there, {1, 1}));
  CHECK_FALSE(f.book.speaks_for(f.here, {2, 2}));
  CHECK_FALSE(f.book.speaks_for(caf::node_id{}, {1, 1}));
}

TEST_CASE("who speaks without having proved a role is named in the log") {
  fixture f;
  test::captured_log log;
  f.book.speaks_for(f.here, {1, 1});
  CHECK(log.says("has not proved that it may"));
}

TEST_CASE("a hello with another role's, a foreign or no certificate is refused") {
  fixture f;
  const test::authority other;
  const auto hello = fixture::hello_of({1, 1});
  check_refused(f.introduce(f.first, role::worker, hello, f.ca.identity(role::node, "n")),
                "certificate of node n, not of a worker");
  check_refused(f.introduce(f.first, role::worker, hello, other.identity(role::worker)),
                "another cluster's CA");
  check_refused(f.introduce(f.first, role::worker, hello, f.ca.expired(role::worker)), "expired");
  check_refused(f.book.admit(f.first->address(), f.here, role::worker, hello), "shows no certificate");
  CHECK_FALSE(f.book.speaks_for(f.here, {1, 1}));
}

TEST_CASE("a challenge is good for one hello of whoever asked") {
  fixture f;
  const auto worker = f.ca.identity(role::worker);
  auto hello = fixture::hello_of({1, 1});
  REQUIRE(f.introduce(f.first, role::worker, hello, worker).has_value());
  hello.proof = f.last;
  CHECK(f.book.admit(f.first->address(), f.here, role::worker, hello).failure().code == errc::unavailable);

  const auto given = f.book.challenge(f.first->address(), {hello.who, tls::fresh_nonce()});
  REQUIRE(given.has_value());
  hello.proof = {};
  hello.proof = tls::prove(*worker, tls::hello_text(hello.who, given->nonce, wire::encode_message(hello)));
  CHECK_FALSE(f.book.admit(f.second->address(), f.there, role::worker, hello).has_value());
}

TEST_CASE("a hello that was changed on its way is refused") {
  fixture f;
  auto hello = fixture::hello_of({1, 1});
  const auto given = f.book.challenge(f.first->address(), {hello.who, tls::fresh_nonce()});
  REQUIRE(given.has_value());
  hello.proof = tls::prove(*f.ca.identity(role::worker),
                           tls::hello_text(hello.who, given->nonce, wire::encode_message(hello)));
  hello.link = {"192.0.2.9", 9};
  check_refused(f.book.admit(f.first->address(), f.here, role::worker, hello), "signed something else");
}

TEST_CASE("a life keeps to its certificate") {
  fixture f;
  const auto hello = fixture::hello_of({1, 1});
  REQUIRE(f.introduce(f.first, role::worker, hello, f.ca.identity(role::worker, "a")).has_value());
  CHECK(f.introduce(f.first, role::worker, hello, f.ca.identity(role::worker, "a")).has_value());
  check_refused(f.introduce(f.second, role::worker, hello, f.ca.identity(role::worker, "b")),
                "worker a has spoken for this life");
}

TEST_CASE("without certificates everybody is believed, and a challenge is refused") {
  fixture f;
  f.book = role_book();
  CHECK(f.book.admit(f.first->address(), f.here, role::worker, fixture::hello_of({1, 1})).has_value());
  CHECK(f.book.speaks_for(f.here, {1, 1}));
  CHECK(f.book.challenge(f.first->address(), {{1, 1}, tls::fresh_nonce()}).failure().code == errc::refused);
}

TEST_CASE("challenges are bounded, the oldest goes first") {
  fixture f;
  std::deque<caf::scoped_actor> many;
  const challenge_request asked{{1, 1}, tls::fresh_nonce()};
  auto hello = fixture::hello_of({1, 1});
  const auto oldest = f.book.challenge(f.first->address(), asked);
  REQUIRE(oldest.has_value());
  for (std::size_t i = 0; i < role_book::challenges_max; ++i) {
    many.emplace_back(f.system);
    REQUIRE(f.book.challenge(many.back()->address(), asked).has_value());
  }
  hello.proof = tls::prove(*f.ca.identity(role::worker),
                           tls::hello_text(hello.who, oldest->nonce, wire::encode_message(hello)));
  CHECK(f.book.admit(f.first->address(), f.here, role::worker, hello).failure().code == errc::unavailable);
}
