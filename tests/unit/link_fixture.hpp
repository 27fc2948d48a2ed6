// For tests of links: what happened, in order; and a peer made of a bare socket, which can misbehave.
#pragma once

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/transport/handshake.hpp"
#include "actors/transport/link.hpp"
#include "actors/transport/message_stream.hpp"

namespace perdura::transport::test {

using namespace std::chrono_literals;

inline std::vector<std::byte> pattern(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  std::uint64_t x = seed * 0x9e3779b97f4a7c15ULL + 1;
  for (auto& b : bytes) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    b = static_cast<std::byte>(x);
  }
  return bytes;
}

inline message make_message(std::size_t head, std::size_t body, std::uint64_t seed) {
  return {pattern(head, seed), blob::take(pattern(body, seed + 1))};
}

inline bool same(const message& a, const message& b) { return a.head == b.head && a.body == b.body; }

struct happening {
  enum class kind { up, down, received, writable } what{};
  incarnation peer;
  std::uint64_t session = 0;
  std::string why;
  message content;
};

class recorder {
 public:
  link_events events() {
    using k = happening::kind;
    return {.up =
                [this](incarnation p, std::uint64_t s) {
                  add({k::up, p, s, {}, {}});
                },
            .down =
                [this](incarnation p, std::uint64_t s, std::string why) {
                  add({k::down, p, s, std::move(why), {}});
                },
            .received =
                [this](incarnation p, std::uint64_t s, message m) {
                  add({k::received, p, s, {}, std::move(m)});
                },
            .writable =
                [this](incarnation p) {
                  add({k::writable, p, 0, {}, {}});
                }};
  }

  // The next happening of that kind, in order; empty after a time that only a failure takes.
  std::optional<happening> next(happening::kind what, std::chrono::milliseconds patience = 20s) {
    std::unique_lock lock(mutex_);
    std::size_t& at = seen_[static_cast<int>(what)];
    const auto find = [&] {
      while (at < all_.size() && all_[at].what != what) ++at;
      return at < all_.size();
    };
    if (!changed_.wait_for(lock, patience, find)) return std::nullopt;
    return all_[at++];
  }
  std::optional<happening> up() { return next(happening::kind::up); }
  std::optional<happening> down() { return next(happening::kind::down); }
  std::optional<happening> received() { return next(happening::kind::received); }
  std::optional<happening> writable() { return next(happening::kind::writable); }

  std::vector<happening> all() {
    std::lock_guard lock(mutex_);
    return all_;
  }
  std::size_t count(happening::kind what) {
    std::size_t n = 0;
    for (const auto& h : all()) n += h.what == what ? 1 : 0;
    return n;
  }

 private:
  void add(happening h) {
    std::lock_guard lock(mutex_);
    all_.push_back(std::move(h));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<happening> all_;
  std::size_t seen_[4] = {};
};

// A blocking socket; every wait ends after a time that only a failure takes.
class raw_socket {
 public:
  explicit raw_socket(int descriptor) : descriptor_(descriptor) {
    const timeval patience{20, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ::setsockopt(descriptor_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  }
  raw_socket(raw_socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  raw_socket(const raw_socket&) = delete;
  raw_socket& operator=(const raw_socket&) = delete;
  ~raw_socket() { close(); }

  static raw_socket dial(const endpoint& where) {
    raw_socket s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(where.port);
    ::inet_pton(AF_INET, where.host.c_str(), &to.sin_addr);
    if (::connect(s.descriptor_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) s.close();
    return s;
  }

  bool send(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto n = ::send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool receive(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      const auto n = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
    return true;
  }
  std::size_t receive_some(std::span<std::byte> bytes) {
    const auto n = ::recv(descriptor_, bytes.data(), bytes.size(), 0);
    return n > 0 ? static_cast<std::size_t>(n) : 0;
  }
  // The other side has closed (or reset) the connection, and sent nothing before.
  bool is_closed_by_peer() {
    std::byte b;
    return ::recv(descriptor_, &b, 1, 0) == 0 || errno == ECONNRESET;
  }
  void reset() {
    const linger now{1, 0};
    ::setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }
  void close() {
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
  }
  int descriptor() const { return descriptor_; }
  bool is_open() const { return descriptor_ >= 0; }

  bool send(const greeting& g) { return send(std::span<const std::byte>(encode(g))); }
  std::optional<greeting> receive_greeting() {
    encoded_greeting bytes;
    if (!receive(bytes)) return std::nullopt;
    auto g = decode_greeting(bytes);
    if (!g) return std::nullopt;
    return *g;
  }
  bool send(message m) {
    message_writer writer;
    return send_with(writer, std::move(m));
  }
  bool send_with(message_writer& writer, message m) {
    writer.push(std::move(m));
    while (!writer.pending().empty()) {
      const auto part = writer.pending().front();
      if (!send(part)) return false;
      writer.advance(part.size());
    }
    return true;
  }

 private:
  int descriptor_;
};

// Dials and shakes hands as `self` would; up to, but without, the welcome.
inline std::optional<raw_socket> introduce(const endpoint& where, incarnation self, incarnation peer,
                                           const std::string& cookie = {}) {
  auto s = raw_socket::dial(where);
  auto shake = handshake::of_dialer(self, peer, cookie, nonce{});
  if (!s.is_open() || !s.send(shake.hello())) return std::nullopt;
  const auto challenge = s.receive_greeting();
  if (!challenge) return std::nullopt;
  const auto step = shake.receive(*challenge);
  if (!step.reply || !step.refused.empty() || !s.send(*step.reply)) return std::nullopt;
  return s;
}

inline std::optional<raw_socket> connect_raw(const endpoint& where, incarnation self, incarnation peer,
                                             const std::string& cookie = {}) {
  auto s = introduce(where, self, peer, cookie);
  if (!s) return std::nullopt;
  const auto welcome = s->receive_greeting();
  if (!welcome || welcome->kind != greeting_kind::welcome) return std::nullopt;
  return s;
}

}  // namespace perdura::transport::test
