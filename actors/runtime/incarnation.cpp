#include "actors/runtime/incarnation.hpp"

#include <sys/random.h>

#include "actors/base/check.hpp"

namespace perdura::runtime {

incarnation random_incarnation() {
  incarnation who;
  while (who.is_none()) {
    // Up to 256 bytes come whole and uninterrupted.
    const auto got = ::getrandom(&who, sizeof who, 0);
    PERDURA_CHECK(got == static_cast<ssize_t>(sizeof who), "the kernel has no randomness");
  }
  return who;
}

}  // namespace perdura::runtime
