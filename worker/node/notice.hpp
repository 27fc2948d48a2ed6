// Notices that a machine is about to go, and how they say when. Pure: what was read comes in, with the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "actors/base/result.hpp"

namespace perdura::worker::node {

using wall_time = std::chrono::system_clock::time_point;

struct notice {
  std::chrono::milliseconds left{};
  std::string why;  // who said it, in words
};

// A deadline further away than this counts as so far.
inline constexpr std::chrono::hours notice_most{24};

// RFC 3339 ("2026-03-01T12:00:00Z", "2026-03-01T12:00:00.5+01:00") or as in HTTP headers ("Sun, 01 Mar 2026
// 12:00:00 GMT").
result<wall_time> parse_time(const std::string& text);

// 0 when it has passed.
std::chrono::milliseconds time_left(wall_time deadline, wall_time now);

// Seconds from now, or a time; none if there is nothing but spaces.
result<std::optional<std::chrono::milliseconds>> parse_deadline(const std::string& text, wall_time now);

// A notice once there is such a file. An unreadable deadline in it is logged and counts as none: `grace`.
result<std::optional<notice>> read_notice_file(const std::string& path, std::chrono::milliseconds grace,
                                               wall_time now);

}  // namespace perdura::worker::node
