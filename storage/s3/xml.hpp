// What S3 services answer in XML, and the one thing that is asked in it. A text is refused if it is not
// exactly what is expected: another root, a document type, a number that is none, a list that is too long.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/object_store.hpp"

namespace perdura::storage::s3 {

inline constexpr std::size_t xml_bytes_max = std::size_t{4} << 20;
inline constexpr std::size_t xml_entries_max = 10'000;  // of one answer; services send 1,000
inline constexpr std::size_t key_bytes_max = 1024;
inline constexpr std::uint32_t part_number_max = 10'000;

struct listing {
  std::vector<object_entry> entries;  // whole keys
  std::string next;                   // continuation token; empty: this was the last page
};
result<listing> parse_listing(std::string_view xml);

struct open_upload {
  std::string key;
  std::string id;
  std::string initiated;  // as the service writes times, which sorts by age
};
struct upload_listing {
  std::vector<open_upload> uploads;
  std::string next_key, next_id;  // empty: this was the last page
};
result<upload_listing> parse_uploads(std::string_view xml);

struct uploaded_part {
  std::uint32_t number{};  // from 1
  std::uint64_t size{};
  std::string etag;  // without quotes
};
struct part_listing {
  std::vector<uploaded_part> parts;
  std::string next;  // empty: this was the last page
};
result<part_listing> parse_parts(std::string_view xml);

// Of the answer to the request that begins an upload.
result<std::string> parse_upload_id(std::string_view xml);
// A completed upload: an answer of status 200 may still be an error, which only its text says.
result<void> parse_completed(std::string_view xml);
std::string complete_request(const std::vector<uploaded_part>& parts);

struct service_error {
  std::string code;     // "SlowDown"; empty where the text is none
  std::string message;  // printable and short
};
// Anything may come with an error status; what is not understood gives an empty one.
service_error parse_error(std::string_view xml);

}  // namespace perdura::storage::s3
