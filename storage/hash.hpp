// The name of a chunk: SHA-256 over its decoded bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace perdura::storage {

struct content_hash {
  std::array<std::uint8_t, 32> bytes{};
  auto operator<=>(const content_hash&) const = default;
};

content_hash hash_of(std::span<const std::byte> bytes);
content_hash hash_of(std::string_view text);

std::string to_string(const content_hash& hash);  // 64 lower-case hexadecimal digits
std::optional<content_hash> parse_hash(std::string_view text);

}  // namespace perdura::storage
