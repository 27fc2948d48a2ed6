#include "storage/crc32c.hpp"

#include <array>
#include <cstring>
#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace perdura::storage {
namespace {

constexpr std::array<std::uint32_t, 256> make_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0x82f63b78U : 0U);
    table[i] = c;
  }
  return table;
}
constexpr auto table = make_table();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(std::span<const std::byte> bytes) {
  std::uint64_t c = 0xffffffffU;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof word);
    c = _mm_crc32_u64(c, word);
  }
  auto tail = static_cast<std::uint32_t>(c);
  for (; i < bytes.size(); ++i) tail = _mm_crc32_u8(tail, std::to_integer<std::uint8_t>(bytes[i]));
  return ~tail;
}
#endif

}  // namespace

std::uint32_t crc32c_by_table(std::span<const std::byte> bytes) {
  std::uint32_t c = 0xffffffffU;
  for (const std::byte b : bytes) c = c >> 8 ^ table[(c ^ std::to_integer<std::uint32_t>(b)) & 0xff];
  return ~c;
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes);
#endif
  return crc32c_by_table(bytes);
}

}  // namespace perdura::storage
