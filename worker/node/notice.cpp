#include "worker/node/notice.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>

#include "actors/base/log.hpp"

namespace perdura::worker::node {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t file_bytes_max = 4096;

std::string trimmed(const std::string& text) {
  constexpr auto spaces = " \t\r\n";
  const auto first = text.find_first_not_of(spaces);
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(spaces) - first + 1);
}

// The offset at the end of an RFC 3339 time, in seconds; none if it is not one.
std::optional<long> parse_offset(const std::string& text) {
  if (text == "Z" || text == "z") return 0;
  int hours = 0, minutes = 0, end = 0;
  char sign = 0;
  if (std::sscanf(text.c_str(), "%c%2d:%2d%n", &sign, &hours, &minutes, &end) != 3 || end != 6 ||
      (sign != '+' && sign != '-') || hours < 0 || hours > 23 || minutes < 0 || minutes > 59)
    return std::nullopt;
  return (sign == '-' ? -60L : 60L) * (60L * hours + minutes);
}

std::optional<wall_time> parse_rfc3339(const std::string& text) {
  std::tm t{};
  const char* rest = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &t);
  if (rest == nullptr) return std::nullopt;
  // A part of a second decides nothing.
  if (*rest == '.') {
    const char* digits = rest + 1;
    rest = digits + std::strspn(digits, "0123456789");
    if (rest == digits) return std::nullopt;
  }
  const auto offset = parse_offset(rest);
  if (!offset) return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&t) - *offset);
}

std::optional<wall_time> parse_http_date(const std::string& text) {
  std::tm t{};
  const char* rest = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &t);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  return std::chrono::system_clock::from_time_t(::timegm(&t));
}

}  // namespace

result<wall_time> parse_time(const std::string& text) {
  if (const auto t = parse_rfc3339(text)) return *t;
  if (const auto t = parse_http_date(text)) return *t;
  return error{errc::invalid_argument, "\"" + text.substr(0, 64) +
                                           "\" is no time: expected one like 2026-03-01T12:00:00Z or "
                                           "Sun, 01 Mar 2026 12:00:00 GMT"};
}

milliseconds time_left(wall_time deadline, wall_time now) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - now);
  return std::clamp<milliseconds>(left, milliseconds(0), notice_most);
}

result<std::optional<milliseconds>> parse_deadline(const std::string& text, wall_time now) {
  const auto said = trimmed(text);
  if (said.empty()) return std::optional<milliseconds>{};
  double seconds = 0;
  const auto* end = said.data() + said.size();
  if (const auto parsed = std::from_chars(said.data(), end, seconds);
      parsed.ec == std::errc{} && parsed.ptr == end && seconds >= 0) {
    const auto most = static_cast<double>(std::chrono::seconds(notice_most).count());
    return std::optional(milliseconds(static_cast<std::int64_t>(1000 * std::min(seconds, most))));
  }
  const auto at = parse_time(said);
  if (!at) return error{errc::invalid_argument, at.failure().message + ", or a number of seconds"};
  return std::optional(time_left(*at, now));
}

result<std::optional<notice>> read_notice_file(const std::string& path, milliseconds grace, wall_time now) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0 && (errno == ENOENT || errno == ENOTDIR)) return std::optional<notice>{};
  if (file < 0) return error{errc::io, "cannot read the notice file " + path + ": " + std::strerror(errno)};
  std::array<char, file_bytes_max> bytes{};
  const auto size = ::read(file, bytes.data(), bytes.size());
  const int failure = errno;
  ::close(file);
  if (size < 0) return error{errc::io, "cannot read the notice file " + path + ": " + std::strerror(failure)};
  const auto deadline = parse_deadline(std::string(bytes.data(), static_cast<std::size_t>(size)), now);
  if (!deadline)
    log::warn("the notice file " + path + " says when the machine goes, but " + deadline.failure().message +
              "; " + std::to_string(grace.count()) + " ms it is");
  return std::optional(
      notice{deadline && *deadline ? **deadline : grace, "the notice file " + path + " is there"});
}

}  // namespace perdura::worker::node
