// Signed requests to one bucket, repeated where that helps. What is asked is in s3_store and multipart.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "storage/s3/credentials.hpp"
#include "storage/s3/http.hpp"
#include "storage/s3/retry.hpp"
#include "storage/s3/sigv4.hpp"
#include "storage/s3/xml.hpp"

namespace perdura::storage::s3 {

// Services take parts of 5 MiB and more, but for the last one.
inline constexpr std::uint64_t part_bytes_default = std::uint64_t{16} << 20;

struct s3_options {
  std::string endpoint;  // "https://s3.eu-central-1.amazonaws.com", "http://127.0.0.1:9000"
  std::string bucket;
  std::string prefix;  // "runs/a": object names are below it
  std::string region = "us-east-1";
  bool is_path_style = true;         // the bucket in the path, not in the host's name
  bool has_conditional_puts = true;  // false: the service does not know If-None-Match on PUT
  bool allows_plain_http = false;    // beyond loopback
  std::string ca_file;               // instead of the system's list
  std::uint64_t part_bytes = part_bytes_default;
  http_limits limits;
  retry_options retry;
  credentials_source who;
};

// Where requests go: what is made of s3_options, checked.
struct place {
  std::string scheme;     // "https"
  std::string host;       // with the port, unless it is the scheme's own; with the bucket, unless path-style
  std::string path_root;  // "/" or "/bucket/"
  std::string key_root;   // "" or "runs/a/"
  bool is_loopback = false;
};
// Error invalid_argument: what is wrong with which setting.
result<place> resolve(const s3_options& options);

struct s3_request {
  std::string method;
  std::string key;  // empty: the bucket itself
  std::vector<text_pair> query{};
  std::vector<text_pair> headers{};
  std::optional<std::string_view> body{};
  std::optional<std::span<std::byte>> into{};
  std::size_t text_bytes_max = error_text_bytes_max;
  std::optional<std::chrono::seconds> stall{};
  bool is_once = false;  // as http_request's
  // Of a successful answer: none if it fits, else how this attempt is to be counted.
  std::function<std::optional<attempt>(const http_reply&)> judge{};
};

struct s3_answer {
  http_reply reply;
  service_error failure;      // of an error status
  bool is_ambiguous = false;  // an earlier attempt may have taken effect
  bool is_success() const { return reply.status >= 200 && reply.status < 300; }
};

// On one thread, but for cancel().
class client {
 public:
  static result<std::unique_ptr<client>> make(s3_options options);

  // An answer of any status, the last one of several attempts; an error if there was none at all.
  result<s3_answer> send(const s3_request& request);
  // In the words of `attempted` ("put packs/x"), with status, the service's code and what to do about it.
  error failure_of(const std::string& attempted, const s3_answer& answer) const;

  std::string key_of(const std::string& name) const { return at_.key_root + name; }
  std::string where() const;
  const s3_options& options() const { return options_; }
  void cancel() { http_.cancel(); }

 private:
  client(s3_options options, place at);
  http_request signed_request(const s3_request& request, const std::string& payload_hash,
                              const credentials& who) const;
  attempt count(const s3_request& request, const http_outcome& outcome, const credentials& who,
                service_error& said);
  void follow_clock(const http_reply& reply);

  s3_options options_;
  place at_;
  http_session http_;
  std::chrono::seconds clock_ahead_{0};  // how much the service's clock is ahead of ours
};

}  // namespace perdura::storage::s3
