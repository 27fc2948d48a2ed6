// Broken invariants end the process: a failure like any other, and the cluster goes on without it.
#pragma once

namespace perdura {
[[noreturn]] void check_failed(const char* condition, const char* why, const char* file, int line);
// For the simulator alone, to which a broken invariant is a finding: must not return normally.
using check_handler = void (*)(const char* condition, const char* why);
void set_check_handler(check_handler handler);
}  // namespace perdura

#define PERDURA_CHECK(condition, why)                               \
  do {                                                              \
    if (!(condition)) [[unlikely]]                                  \
      ::perdura::check_failed(#condition, why, __FILE__, __LINE__); \
  } while (false)
