// CRC-32C (Castagnoli, reflected, as in RFC 3720): finds torn and damaged frames without decoding them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdura::storage {

std::uint32_t crc32c(std::span<const std::byte> bytes);

// The same by table, for processors without the instruction; public so that a test can compare the two.
std::uint32_t crc32c_by_table(std::span<const std::byte> bytes);

}  // namespace perdura::storage
