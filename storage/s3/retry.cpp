#include "storage/s3/retry.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace perdura::storage::s3 {
namespace {

// Errors of the client's side of the status codes that are over by themselves.
constexpr std::array<std::string_view, 5> passing_codes{
    "RequestTimeout", "SlowDown", "ConditionalRequestConflict", "OperationAborted", "RequestTimeTooSkewed"};

}  // namespace

bool is_worth_another_try(const attempt& a) {
  if (a.ended != fate::answered) return a.ended != fate::hopeless;
  if (std::find(passing_codes.begin(), passing_codes.end(), a.code) != passing_codes.end()) return true;
  // 501: it never learns.
  return a.status == 408 || a.status == 429 || (a.status >= 500 && a.status != 501);
}

bool may_have_taken_effect(const attempt& a) {
  if (a.ended == fate::lost || a.ended == fate::broken) return true;
  // A gateway that gives up on the service behind it does not know either.
  return a.ended == fate::answered && a.status >= 500;
}

std::optional<std::chrono::milliseconds> retry_schedule::next(const attempt& failed, time_point now) {
  using std::chrono::milliseconds;
  ++attempts_;
  is_ambiguous_ = is_ambiguous_ || may_have_taken_effect(failed);
  if (!is_worth_another_try(failed) || attempts_ >= options_.attempts_max) return std::nullopt;
  auto wait = options_.first;
  for (int i = 1; i < attempts_ && wait < options_.longest; ++i) wait *= 2;
  wait = std::min(wait, options_.longest);
  const milliseconds half = wait / 2;
  wait = half + milliseconds(std::uniform_int_distribution<milliseconds::rep>(0, half.count())(random_));
  if (failed.retry_after) wait = std::clamp(*failed.retry_after, wait, options_.longest);
  if (now + wait - begun_ > options_.budget) return std::nullopt;
  return wait;
}

}  // namespace perdura::storage::s3
