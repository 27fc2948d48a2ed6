// Random numbers by purpose: each link, process and coordinator draws from a stream of its own, all derived
// from the seed, so that leaving out one fault does not shift what happens elsewhere.
#pragma once

#include <cstdint>

#include "chaos/sim/toy.hpp"

namespace perdura::sim {

using micros = std::int64_t;

enum class purpose : std::uint64_t { cluster = 1, faults, seat, process, link, coordinator };

class draws {
 public:
  draws() = default;
  draws(std::uint64_t seed, purpose p, std::uint64_t a = 0, std::uint64_t b = 0)
      : state_(mix(mix(seed, static_cast<std::uint64_t>(p)), mix(a, b))) {}

  // splitmix64: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", 2014.
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  // Both included.
  micros between(micros low, micros high) {
    return low + static_cast<micros>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(double p) { return static_cast<double>(next() >> 11) * 0x1p-53 < p; }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace perdura::sim
