#include <doctest/doctest.h>

#include <random>

#include "tests/unit/link_fixture.hpp"

using namespace perdura;
using namespace perdura::transport;
using namespace perdura::transport::test;

namespace {

const incarnation low{1, 1};
const incarnation high{2, 2};
const nonce first_nonce{std::byte{1}};
const nonce second_nonce{std::byte{2}};

std::vector<std::byte> encoded(std::vector<message> messages) {
  message_writer writer;
  std::vector<std::byte> bytes;
  const auto drain = [&] {
    while (!writer.pending().empty()) {
      const auto part = writer.pending().front();
      bytes.insert(bytes.end(), part.begin(), part.end());
      writer.advance(part.size());
    }
  };
  for (auto& m : messages) {
    if (!writer.has_space()) drain();
    writer.push(std::move(m));
  }
  drain();
  return bytes;
}

// Feeds bytes as they would come from a socket: never more than the reader has room for, cut by `next_size`.
template <class Size>
result<void> feed(message_reader& reader, std::span<const std::byte> bytes, std::vector<message>& out,
                  Size next_size) {
  while (!bytes.empty()) {
    std::size_t left = std::min<std::size_t>(bytes.size(), next_size());
    std::size_t taken = 0;
    for (auto target : reader.targets()) {
      const std::size_t n = std::min(left, target.size());
      if (n > 0) std::memcpy(target.data(), bytes.data() + taken, n);
      taken += n;
      left -= n;
    }
    bytes = bytes.subspan(taken);
    auto advanced = reader.advance(taken, [&](message m) { out.push_back(std::move(m)); });
    if (!advanced) return advanced;
  }
  return {};
}

}  // namespace

TEST_CASE("messages survive being cut anywhere") {
  std::mt19937 random(7);
  const std::size_t p = piece_bytes_max;
  const std::vector<std::pair<std::size_t, std::size_t>> sizes{
      {0, 0},     {1, 0}, {0, 1}, {100, 24},           {0, p - 1}, {0, p},
      {0, p + 1}, {5, p}, {p, 3}, {p + 7, 3 * p + 11}, {40, 0},    {0, 0}};
  for (std::size_t largest : {1, 23, 24, 25, 4096, 300'000}) {
    std::vector<message> sent;
    for (const auto& [head, body] : sizes) {
      if (largest < 20 && head + body > p + 1) continue;
      sent.push_back(make_message(head, body, sent.size()));
    }
    message_reader reader;
    std::vector<message> got;
    const auto fed = feed(reader, encoded(sent), got, [&] { return 1 + random() % largest; });
    REQUIRE(fed.has_value());
    REQUIRE(got.size() == sent.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(same(got[i], sent[i]));
  }
}

TEST_CASE("a received body is aligned") {
  message_reader reader;
  std::vector<message> got;
  REQUIRE(feed(reader, encoded({make_message(3, 1001, 1), make_message(5, 77, 2)}), got, [] {
            return 500;
          }).has_value());
  REQUIRE(got.size() == 2);
  for (const auto& m : got) CHECK(reinterpret_cast<std::uintptr_t>(m.body.data()) % body_alignment == 0);
}

TEST_CASE("a sent body stays where it is") {
  const message m = make_message(10, 2 * piece_bytes_max, 3);
  const std::byte* begin = m.body.data();
  message_writer writer;
  writer.push(m);
  std::size_t in_place = 0;
  while (!writer.pending().empty()) {
    const auto part = writer.pending().front();
    if (part.data() >= begin && part.data() < begin + m.body.size()) in_place += part.size();
    writer.advance(part.size());
  }
  CHECK(in_place == m.body.size());
}

TEST_CASE("the writer gives the size of a message back once it has left entirely") {
  message_writer writer;
  const message m = make_message(10, 5 * piece_bytes_max, 4);
  writer.push(m);
  std::size_t released = 0;
  while (!writer.pending().empty()) {
    CHECK(released == 0);
    released += writer.advance(writer.pending().front().size());
  }
  CHECK(released == queued_size(m));
}

TEST_CASE("no changed bit gets through") {
  const std::size_t first_size = encoded({make_message(9, 30, 5)}).size();
  const std::vector<std::byte> good = encoded({make_message(9, 30, 5), make_message(0, 8, 6)});
  for (std::size_t at = 0; at < good.size(); ++at) {
    auto bad = good;
    bad[at] ^= std::byte{0x10};
    message_reader reader;
    std::vector<message> got;
    const auto fed = feed(reader, bad, got, [] { return 64; });
    CAPTURE(at);
    CHECK_FALSE(fed.has_value());
    CHECK(got.size() == (at < first_size ? 0 : 1));
  }
}

TEST_CASE("a repeated, a missing and a swapped message are found") {
  const auto one = make_message(4, 4, 1);
  const auto two = make_message(4, 4, 2);
  const auto three = make_message(4, 4, 3);
  const auto all = encoded({one, two, three});
  const std::size_t size = all.size() / 3;
  const auto part = [&](std::size_t i) { return std::span(all).subspan(i * size, size); };
  for (const auto& order : std::vector<std::vector<std::size_t>>{{0, 0}, {0, 2}, {1}, {0, 2, 1}}) {
    message_reader reader;
    std::vector<message> got;
    bool failed = false;
    for (auto i : order) failed = failed || !feed(reader, part(i), got, [] { return 1000; });
    CHECK(failed);
    CHECK(got.size() <= 1);
  }
}

TEST_CASE("sizes above the limits are refused before anything is allocated") {
  for (const auto& [head, body] : std::vector<std::pair<std::uint32_t, std::uint32_t>>{
           {head_bytes_max + 1, 0}, {0, body_bytes_max + 1}, {0xffffffff, 0xffffffff}}) {
    piece_header h{.head_bytes = head, .body_bytes = body, .index = 0, .header_check = 0, .checksum = 0};
    h.header_check = header_check(0, h);
    const auto bytes = encode(h);
    message_reader reader;
    std::vector<message> got;
    const auto fed = feed(reader, bytes, got, [] { return 100; });
    REQUIRE_FALSE(fed.has_value());
    CHECK(fed.failure().code == errc::corrupt);
    CHECK(fed.failure().message.find("above the limit") != std::string::npos);
  }
}

TEST_CASE("random bytes are never a message") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    message_reader reader;
    std::vector<message> got;
    CHECK_FALSE(feed(reader, pattern(1000, seed), got, [] { return 100; }).has_value());
    CHECK(got.empty());
  }
}

TEST_CASE("two that know the cookie and each other shake hands") {
  auto dialer = handshake::of_dialer(low, high, "cookie", first_nonce);
  auto acceptor = handshake::of_acceptor(high, "cookie", second_nonce);
  const auto challenge = acceptor.receive(dialer.hello());
  REQUIRE(challenge.reply);
  CHECK_FALSE(challenge.done);
  const auto proof = dialer.receive(*challenge.reply);
  REQUIRE(proof.reply);
  CHECK_FALSE(proof.done);
  CHECK(acceptor.receive(*proof.reply).done);
  CHECK(acceptor.peer() == low);
  CHECK(dialer.receive(acceptor.welcome()).done);
}

TEST_CASE("a greeting survives its encoding") {
  greeting g;
  g.kind = greeting_kind::refusal;
  g.reason = refusal_reason::wrong_cookie;
  g.from = low;
  g.to = high;
  g.fresh = first_nonce;
  g.proof[31] = std::byte{9};
  const auto back = decode_greeting(encode(g));
  REQUIRE(back.has_value());
  CHECK(encode(*back) == encode(g));
  auto other = encode(g);
  other[0] ^= std::byte{1};
  CHECK(decode_greeting(other).failure().code == errc::corrupt);
}

TEST_CASE("the acceptor refuses by name what does not fit") {
  const auto refusal_of = [](greeting hello) {
    auto acceptor = handshake::of_acceptor(high, "cookie", second_nonce);
    const auto s = acceptor.receive(hello);
    CHECK_FALSE(s.refused.empty());
    CHECK_FALSE(s.done);
    REQUIRE(s.reply);
    CHECK(s.reply->kind == greeting_kind::refusal);
    return s.reply->reason;
  };
  const greeting good = handshake::of_dialer(low, high, "cookie", first_nonce).hello();
  greeting g = good;
  g.transport += 1;
  CHECK(refusal_of(g) == refusal_reason::version);
  g = good;
  g.protocol += 1;
  CHECK(refusal_of(g) == refusal_reason::version);
  g = good;
  g.to = {7, 7};
  CHECK(refusal_of(g) == refusal_reason::wrong_incarnation);
  g = good;
  g.from = {3, 3};
  CHECK(refusal_of(g) == refusal_reason::wrong_role);
  g = good;
  g.from = {};
  CHECK(refusal_of(g) == refusal_reason::wrong_role);
  g = good;
  g.kind = greeting_kind::proof;
  CHECK(refusal_of(g) == refusal_reason::wrong_role);
}

TEST_CASE("a version mismatch names both versions on both sides") {
  auto acceptor = handshake::of_acceptor(high, "", second_nonce);
  auto dialer = handshake::of_dialer(low, high, "", first_nonce);
  greeting newer = dialer.hello();
  newer.protocol = 77;
  const auto s = acceptor.receive(newer);
  CHECK(s.refused.find("protocol version 77") != std::string::npos);
  CHECK(s.refused.find("protocol version " + std::to_string(protocol_version)) != std::string::npos);
  greeting refusal = *s.reply;
  refusal.protocol = 78;
  CHECK(dialer.receive(refusal).refused.find("protocol version 78") != std::string::npos);
}

TEST_CASE("proofs need the cookie, both names and this connection's nonces") {
  const auto last_step = [](const std::string& dialers_cookie, auto tamper) {
    auto dialer = handshake::of_dialer(low, high, dialers_cookie, first_nonce);
    auto acceptor = handshake::of_acceptor(high, "cookie", second_nonce);
    auto challenge = acceptor.receive(dialer.hello());
    auto proof = dialer.receive(*challenge.reply);
    if (!proof.refused.empty()) return std::pair(false, true);
    tamper(*proof.reply);
    const auto end = acceptor.receive(*proof.reply);
    return std::pair(end.done, false);
  };
  CHECK(last_step("cookie", [](greeting&) {}).first);
  CHECK(last_step("other", [](greeting&) {}).second);
  CHECK_FALSE(last_step("cookie", [](greeting& g) { g.from = {0, 5}; }).first);
  CHECK_FALSE(last_step("cookie", [](greeting& g) { g.proof[0] ^= std::byte{1}; }).first);
  // A proof recorded from another connection, and the acceptor's own proof sent back to it.
  CHECK_FALSE(last_step("cookie", [](greeting& g) {
                auto d = handshake::of_dialer(low, high, "cookie", second_nonce);
                auto a = handshake::of_acceptor(high, "cookie", first_nonce);
                g = *d.receive(*a.receive(d.hello()).reply).reply;
              }).first);
  CHECK_FALSE(last_step("cookie", [](greeting& g) {
                auto d = handshake::of_dialer(low, high, "cookie", first_nonce);
                auto a = handshake::of_acceptor(high, "cookie", second_nonce);
                g.proof = a.receive(d.hello()).reply->proof;
              }).first);
}

TEST_CASE("a dialer that reaches another process says which") {
  auto dialer = handshake::of_dialer(low, high, "", first_nonce);
  auto stranger = handshake::of_acceptor({9, 9}, "", second_nonce);
  const auto refused = stranger.receive(dialer.hello());
  const auto s = dialer.receive(*refused.reply);
  CHECK(s.refused.find(short_name({9, 9})) != std::string::npos);
  // Its own hello coming back, from a port that it happened to connect to itself.
  auto mirror = handshake::of_dialer(low, high, "", first_nonce);
  CHECK_FALSE(mirror.receive(mirror.hello()).refused.empty());
}
