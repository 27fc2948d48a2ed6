// How bytes get into a bucket: whole, or in parts of one upload that survives our death. Every body is named
// by its SHA-256 (signed) and its MD5; what the service says it holds is compared.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "storage/object_store.hpp"
#include "storage/s3/client.hpp"

namespace perdura::storage::s3 {

// The bytes' MD5; where OpenSSL is not allowed to compute it (FIPS) both are empty and nothing is compared.
struct md5_text {
  std::string hex;
  std::string base64;
  std::string raw;
};
md5_text md5_of(std::string_view bytes);
// The tag that a service gives an object of these parts.
std::string composite_etag(const std::vector<md5_text>& parts);

enum class tag_match : std::uint8_t { equal, different, unknown };
// Tags are MD5s unless the service encrypts with keys of its own, or is of another mind about tags.
tag_match compare_etag(const http_reply& reply, const std::string& expected);

// Error already_exists with put_mode::if_absent.
result<void> put_bytes(client& c, const std::string& name, std::string_view bytes, put_mode mode);

// Parts of an earlier attempt that are there and right stay; whatever is left of other attempts is removed
// when this one is complete. Memory: one part.
result<void> put_in_parts(client& c, const std::string& name, const std::filesystem::path& source,
                          put_mode mode);

// So that no upload has more parts than services allow.
std::uint64_t part_size_for(std::uint64_t bytes, std::uint64_t part_bytes);

}  // namespace perdura::storage::s3
