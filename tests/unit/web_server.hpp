// A small HTTP/1.1 server on loopback, and a proxy that misbehaves on demand.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace perdura::test {

struct web_request {
  std::string method;
  std::string target;                          // path and query as they were sent
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
  std::string path() const { return target.substr(0, target.find('?')); }
  std::string query() const {
    const auto mark = target.find('?');
    return mark == target.npos ? "" : target.substr(mark + 1);
  }
};

struct web_reply {
  int status = 200;
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers{};  // Content-Length is added unless it is here

  // How it goes wrong.
  bool is_dropped = false;                     // the connection ends without an answer
  std::optional<std::size_t> cut_after{};      // bytes of the body
  std::chrono::milliseconds pause_between{0};  // of single bytes of the body
  bool is_endless = false;                     // the body goes on until the other side has had enough
};

inline bool send_text(int to, std::string_view text) {
  while (!text.empty()) {
    const auto sent = ::send(to, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// A head and as much body as it announces; none: the connection ended.
inline std::optional<std::pair<std::string, std::string>> receive_message(int from, std::string& buffer,
                                                                          bool has_body) {
  char bytes[65536];
  const auto more = [&] {
    const auto got = ::recv(from, bytes, sizeof bytes, 0);
    if (got > 0) buffer.append(bytes, static_cast<std::size_t>(got));
    return got > 0;
  };
  std::size_t end = 0;
  while ((end = buffer.find("\r\n\r\n")) == buffer.npos)
    if (!more()) return std::nullopt;
  std::string head = buffer.substr(0, end + 2);
  buffer.erase(0, end + 4);
  std::string small = head;
  std::transform(small.begin(), small.end(), small.begin(), [](unsigned char c) { return std::tolower(c); });
  const auto length_at = small.find("\r\ncontent-length:");
  std::size_t length = 0;
  if (has_body && length_at != small.npos) length = std::stoull(small.substr(length_at + 17));
  while (buffer.size() < length)
    if (!more()) return std::nullopt;
  std::string body = buffer.substr(0, length);
  buffer.erase(0, length);
  return std::pair(std::move(head), std::move(body));
}

inline std::vector<std::pair<std::string, std::string>> headers_of(const std::string& head) {
  std::vector<std::pair<std::string, std::string>> headers;
  std::size_t at = head.find("\r\n") + 2;
  while (at < head.size()) {
    const auto end = head.find("\r\n", at);
    const auto line = head.substr(at, end - at);
    at = end + 2;
    const auto colon = line.find(':');
    if (colon == line.npos) continue;
    const auto first = line.find_first_not_of(' ', colon + 1);
    headers.emplace_back(line.substr(0, colon), first == line.npos ? "" : line.substr(first));
  }
  return headers;
}

class web_server {
 public:
  using handler = std::function<web_reply(const web_request&)>;

  explicit web_server(handler handle) : handle_(std::move(handle)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener_, 64) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  ~web_server() {
    ending_ = true;
    ::shutdown(listener_, SHUT_RDWR);  // ends the accept
    accepting_.join();
    {
      const std::lock_guard lock(mutex_);
      for (const int peer : open_) ::shutdown(peer, SHUT_RDWR);
    }
    for (auto& t : serving_) t.join();
    ::close(listener_);
  }
  web_server(const web_server&) = delete;
  web_server& operator=(const web_server&) = delete;

  std::uint16_t port() const { return port_; }
  std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return "http://" + host(); }

 private:
  void accept_all() {
    while (!ending_) {
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) continue;
      const std::lock_guard lock(mutex_);
      open_.insert(peer);
      serving_.emplace_back([this, peer] { serve(peer); });
    }
  }
  void serve(int peer) {
    std::string buffer;
    while (!ending_) {
      auto message = receive_message(peer, buffer, true);
      if (!message) break;
      web_request r;
      const auto& head = message->first;
      const auto first = head.find(' ');
      r.method = head.substr(0, first);
      r.target = head.substr(first + 1, head.find(' ', first + 1) - first - 1);
      for (auto& [name, value] : headers_of(head)) {
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        r.headers[name] = value;
      }
      r.body = std::move(message->second);
      if (!answer(peer, r)) break;
    }
    const std::lock_guard lock(mutex_);
    open_.erase(peer);
    ::close(peer);
  }
  // False: the connection is to end.
  bool answer(int peer, const web_request& r) {
    const auto reply = handle_(r);
    if (reply.is_dropped) return false;
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " x\r\n";
    bool has_length = false;
    for (const auto& [name, value] : reply.headers) {
      head += name + ": " + value + "\r\n";
      has_length = has_length || name == "Content-Length";
    }
    if (!has_length && !reply.is_endless)
      head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    if (!send_text(peer, head + "\r\n")) return false;
    if (r.method == "HEAD") return true;
    while (reply.is_endless && !ending_)
      if (!send_text(peer, reply.body)) return false;
    const std::string body = reply.body.substr(0, reply.cut_after.value_or(reply.body.size()));
    if (reply.pause_between.count() == 0) {
      if (!send_text(peer, body)) return false;
    } else {
      for (const char c : body) {
        if (ending_ || !send_text(peer, {&c, 1})) return false;
        std::this_thread::sleep_for(reply.pause_between);
      }
    }
    return !reply.cut_after;
  }

  const handler handle_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ending_ = false;
  std::mutex mutex_;
  std::set<int> open_;
  std::vector<std::thread> serving_;
  std::thread accepting_;
};

// Sends the request to the server at `port` of loopback and gives back what it answers.
inline web_reply forward(const web_request& r, std::uint16_t port) {
  const int upstream = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  at.sin_port = htons(port);
  web_reply reply;
  reply.is_dropped = true;
  std::string text = r.method + " " + r.target + " HTTP/1.1\r\nconnection: close\r\n";
  for (const auto& [name, value] : r.headers)
    if (name != "connection") text += name + ": " + value + "\r\n";
  std::string buffer;
  if (::connect(upstream, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
      send_text(upstream, text + "\r\n") && send_text(upstream, r.body)) {
    if (auto message = receive_message(upstream, buffer, r.method != "HEAD")) {
      reply.is_dropped = false;
      reply.status = std::stoi(message->first.substr(9, 3));
      reply.body = std::move(message->second);
      for (const auto& [name, value] : headers_of(message->first)) {
        std::string small = name;
        std::transform(small.begin(), small.end(), small.begin(),
                       [](unsigned char c) { return std::tolower(c); });
        if (small == "connection" || small == "transfer-encoding") continue;
        reply.headers.emplace_back(small == "content-length" ? "Content-Length" : name, value);
      }
    }
  }
  ::close(upstream);
  return reply;
}

// In front of a server: what `before` answers is answered in its stead; `after` sees the request, which has
// taken effect, and may spoil the answer.
class fault_proxy {
 public:
  using before_hook = std::function<std::optional<web_reply>(const web_request&)>;
  using after_hook = std::function<void(const web_request&, web_reply&)>;

  explicit fault_proxy(std::uint16_t upstream)
      : server_([this, upstream](const web_request& r) { return pass(r, upstream); }) {}

  void set(before_hook before, after_hook after = {}) {
    const std::lock_guard lock(mutex_);
    before_ = std::move(before);
    after_ = std::move(after);
  }
  std::string url() const { return server_.url(); }
  // Method and target of all that came, refused or not.
  std::vector<std::string> log() const {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::size_t count(const std::string& beginning) const {
    const auto lines = log();
    return static_cast<std::size_t>(
        std::count_if(lines.begin(), lines.end(), [&](const auto& l) { return l.starts_with(beginning); }));
  }

 private:
  web_reply pass(const web_request& r, std::uint16_t upstream) {
    before_hook before;
    after_hook after;
    {
      const std::lock_guard lock(mutex_);
      log_.push_back(r.method + " " + r.target);
      before = before_;
      after = after_;
    }
    if (before)
      if (auto instead = before(r)) return *instead;
    auto reply = forward(r, upstream);
    if (after) after(r, reply);
    return reply;
  }

  mutable std::mutex mutex_;
  before_hook before_;
  after_hook after_;
  std::vector<std::string> log_;
  web_server server_;  // last: its threads end first
};

}  // namespace perdura::test
