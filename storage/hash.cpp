#include "storage/hash.hpp"

#include <openssl/evp.h>

#include "actors/base/check.hpp"

namespace perdura::storage {

content_hash hash_of(std::span<const std::byte> bytes) {
  content_hash hash;
  const int done = EVP_Digest(bytes.data(), bytes.size(), hash.bytes.data(), nullptr, EVP_sha256(), nullptr);
  PERDURA_CHECK(done == 1, "OpenSSL computes SHA-256");
  return hash;
}

content_hash hash_of(std::string_view text) { return hash_of(std::as_bytes(std::span(text))); }

std::string to_string(const content_hash& hash) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * hash.bytes.size());
  for (const std::uint8_t b : hash.bytes) {
    text += digits[b >> 4];
    text += digits[b & 15];
  }
  return text;
}

std::optional<content_hash> parse_hash(std::string_view text) {
  content_hash hash;
  if (text.size() != 2 * hash.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    const int digit = is_digit ? c - '0' : c - 'a' + 10;
    hash.bytes[i / 2] = static_cast<std::uint8_t>(hash.bytes[i / 2] << 4 | digit);
  }
  return hash;
}

}  // namespace perdura::storage
