// How perdura ends; documented in docs/cli.md.
#pragma once

#include "actors/base/result.hpp"

namespace perdura::console {

enum exit_code : int {
  exit_ok = 0,
  exit_failed = 1,         // refused or failed; the reason is on standard error
  exit_usage = 2,          // wrong command line
  exit_unreachable = 3,    // no coordinator answers
  exit_interrupted = 130,  // Ctrl-C or SIGTERM before the job had ended
};

inline exit_code exit_code_of(const error& e) {
  return e.code == errc::unavailable || e.code == errc::timeout ? exit_unreachable : exit_failed;
}

}  // namespace perdura::console
