// Where a process's log lines go (actors/base/log.hpp): one line an event,
// "2024-05-01T12:00:00.123+00:00 warn coordinator: text".
#pragma once

#include <cstdint>
#include <string>

#include "actors/base/log.hpp"
#include "actors/base/result.hpp"

namespace perdura::runtime {

struct log_options {
  std::string role;                     // "coordinator", "worker node-1/0"
  std::string file;                     // empty: standard error
  std::uint64_t bytes_max = 16U << 20;  // the file is rotated at this size
  std::uint32_t files = 4;              // kept, the current one included
  log::level least = log::level::info;
};

// Called once by main, before threads start. Lines are written through at once, so that a killed process has
// said all it said. Line breaks and other control characters in a line are written as \n, \x1b ...
result<void> open_log(const log_options& options);

// "debug", "info", "warn" or "error".
result<log::level> parse_level(const std::string& text);

}  // namespace perdura::runtime
