// One HTTP request after the other over libcurl: bounded in time and memory, no redirection, certificates
// verified.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3/retry.hpp"

namespace perdura::storage::s3 {

struct http_limits {
  std::chrono::milliseconds connect{10'000};
  // Under 1 KiB/s for so long: the other side is gone, or might as well be.
  std::chrono::seconds stall{30};
  // A whole request: this, and what its bytes take at 64 KiB/s.
  std::chrono::milliseconds request{60'000};
  std::uint64_t upload_bytes_per_s_max = 0;  // 0: as fast as it goes
};

struct http_options {
  http_limits limits;
  std::string ca_file;     // whom to trust, instead of the system's list
  bool is_direct = false;  // past any proxy that the environment names
};

inline constexpr std::size_t error_text_bytes_max = std::size_t{64} << 10;

struct http_request {
  std::string method;
  std::string url;
  std::vector<std::string> headers{};  // "Name: value"
  std::optional<std::string_view> body{};
  // Of a successful answer's body: exactly this much, into there ...
  std::optional<std::span<std::byte>> into{};
  // ... or so much text at most.
  std::size_t text_bytes_max = error_text_bytes_max;
  std::optional<std::chrono::seconds> stall{};  // instead of the limit's
  // Over a kept connection that turns out to be dead, libcurl sends again by itself and does not say so. For
  // what must not happen twice unnoticed: over a connection of its own.
  bool is_once = false;
};

struct http_reply {
  int status = 0;
  std::string text;                            // of an error: its beginning
  std::size_t received = 0;                    // bytes that went into `into`
  std::map<std::string, std::string> headers;  // the few that are looked at; names in small letters

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

struct http_outcome {
  fate ended = fate::answered;
  http_reply reply;  // when answered
  std::string why;   // otherwise; never more than libcurl's own words
};

// On one thread, but for cancel().
class http_session {
 public:
  explicit http_session(http_options options);
  ~http_session();
  http_session(const http_session&) = delete;
  http_session& operator=(const http_session&) = delete;

  http_outcome send(const http_request& request);
  // False: cancelled.
  bool pause(std::chrono::milliseconds wait);
  // From any thread: what is under way ends, and nothing is sent any more.
  void cancel();

 private:
  struct handles;
  const http_options options_;
  std::unique_ptr<handles> handles_;
  std::atomic<bool> is_cancelled_ = false;
};

}  // namespace perdura::storage::s3
