// Small requests to a service on or beside this machine. No proxy, no redirection, bounded replies.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::worker::node {

struct http_request {
  std::string method;
  std::string url;
  std::vector<std::string> headers{};  // "Name: value"
  std::chrono::milliseconds timeout{};
};

struct http_reply {
  long status{};
  std::string body;
  std::string etag;  // or empty
};

using http_sender = std::function<result<http_reply>(const http_request&)>;

inline constexpr std::size_t http_body_bytes_max = 64U << 10;

class http_client {
 public:
  http_client();
  ~http_client();
  http_client(const http_client&) = delete;
  http_client& operator=(const http_client&) = delete;

  // On one thread. Any status is a reply; errors: timeout, unavailable (nobody answers, or no HTTP;
  // cancelled), exhausted (the body is too long).
  result<http_reply> send(const http_request& r);
  // From any thread: the request under way ends, and none is sent any more.
  void cancel();

 private:
  struct handles;
  std::unique_ptr<handles> handles_;
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace perdura::worker::node
