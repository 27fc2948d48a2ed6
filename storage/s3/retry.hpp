// When a request is sent again, and how much later. Pure: attempts and times come from outside.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <random>
#include <string>

namespace perdura::storage::s3 {

struct retry_options {
  int attempts_max = 8;
  std::chrono::milliseconds first{200};       // doubles with each attempt, half of it at random
  std::chrono::milliseconds longest{20'000};  // of one wait, also where the service asks for more
  std::chrono::milliseconds budget{180'000};  // after so long since the first attempt none is begun
};

// How an attempt ended.
enum class fate : std::uint8_t {
  answered,     // with a status
  unreachable,  // surely without effect: no connection was made
  lost,         // the connection ended, or was silent for too long: it may have taken effect
  broken,       // an answer that does not fit: cut short, another length
  hopeless,     // trying again will not help: no trust in the certificate, a limit, cancelled
};

struct attempt {
  fate ended = fate::answered;
  int status = 0;    // when answered
  std::string code;  // the service's name for the error, if it gave one
  std::optional<std::chrono::milliseconds> retry_after;
};

bool is_worth_another_try(const attempt& a);
// Though it failed, what it asked for may have been done.
bool may_have_taken_effect(const attempt& a);

class retry_schedule {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  retry_schedule(retry_options options, std::uint64_t seed, time_point begun)
      : options_(options), random_(seed), begun_(begun) {}

  // After an attempt that failed: how long to wait before the next one; none: give up.
  std::optional<std::chrono::milliseconds> next(const attempt& failed, time_point now);
  int attempts() const { return attempts_; }
  // An earlier attempt may have done what a later one is refused for: "there is one already".
  bool is_ambiguous() const { return is_ambiguous_; }

 private:
  retry_options options_;
  std::mt19937_64 random_;
  time_point begun_;
  int attempts_ = 0;
  bool is_ambiguous_ = false;
};

}  // namespace perdura::storage::s3
