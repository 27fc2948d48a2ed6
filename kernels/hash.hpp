// 64-bit hashes of state (XXH3): they find differences, they resist nobody.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdura::kernels {

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed = 0);
// Of the parts one after the other, as if they were adjacent.
std::uint64_t hash64_of_parts(std::span<const std::span<const std::byte>> parts);
inline std::uint64_t hash64(std::span<const float> values, std::uint64_t seed = 0) {
  return hash64(std::as_bytes(values), seed);
}

}  // namespace perdura::kernels
