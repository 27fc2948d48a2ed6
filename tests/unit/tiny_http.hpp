// An HTTP server for tests, on loopback: one request a connection, one connection at a time.
#pragma once

#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

namespace perdura::test {

struct asked {
  std::string method;
  std::string path;
  std::map<std::string, std::string> headers;  // names in small letters
};

struct answered {
  int status = 200;
  std::string body;
  std::string more{};  // further header lines, each with its end
};

class tiny_http {
 public:
  using handler = std::function<answered(const asked&)>;

  explicit tiny_http(handler handle) : handle_(std::move(handle)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&at), size) == 0);
    REQUIRE(::listen(listener_, 16) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~tiny_http() {
    ending_ = true;
    ::shutdown(listener_, SHUT_RDWR);  // ends the accept
    thread_.join();
    ::close(listener_);
  }
  tiny_http(const tiny_http&) = delete;
  tiny_http& operator=(const tiny_http&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  static asked parse(const std::string& head) {
    asked a;
    std::istringstream lines(head);
    std::string line;
    std::getline(lines, line);
    std::istringstream(line) >> a.method >> a.path;
    while (std::getline(lines, line)) {
      const auto colon = line.find(':');
      if (colon == std::string::npos) continue;
      auto name = line.substr(0, colon);
      std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
      a.headers[name] = line.substr(colon + 2, line.find('\r') - colon - 2);
    }
    return a;
  }
  void serve() {
    while (!ending_) {
      const int peer = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (peer < 0) continue;
      std::string head;
      char c = 0;
      while (head.find("\r\n\r\n") == std::string::npos && ::read(peer, &c, 1) == 1) head += c;
      if (head.find("\r\n\r\n") != std::string::npos) {
        const auto answer = handle_(parse(head));
        const std::string text =
            "HTTP/1.1 " + std::to_string(answer.status) +
            " x\r\nConnection: close\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n" +
            answer.more + "\r\n" + answer.body;
        [[maybe_unused]] const auto sent = ::send(peer, text.data(), text.size(), MSG_NOSIGNAL);
      }
      ::close(peer);
    }
  }

  const handler handle_;
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::test
