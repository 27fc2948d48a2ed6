// Pack files: chunks appended by one worker, framed so that damage and torn tails are found. Little-endian.
//   file:   header (64 B): "PDRAPACK", u32 version, u32 header size, u64 high, u64 low (incarnation), u32
//   sequence,
//           u32 timeline, u64 step, u64 job (of the snapshot), u32 zero, u32 CRC of the 60 bytes before; then
//           records
//   record: header (64 B): u32 "CHNK", u16 header size, u8 kind, u8 codec, u64 stored size, u64 decoded size,
//           32 B SHA-256 of the decoded bytes, u32 zero, u32 CRC of the 60 bytes before;
//           payload (stored size); u32 CRC of the payload
// CRC is CRC-32C.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "actors/base/result.hpp"
#include "storage/chunk.hpp"
#include "storage/file.hpp"
#include "storage/layout.hpp"

namespace perdura::storage {

inline constexpr std::uint32_t pack_format_version = 2;
inline constexpr std::uint32_t pack_header_bytes = 64;
inline constexpr std::uint32_t record_header_bytes = 64;
inline constexpr std::uint32_t record_trailer_bytes = 4;

struct record_header;

struct pack_options {
  std::uint64_t bytes_max = std::uint64_t{256} << 20;  // the next append beyond this starts another pack
  int (*sync)(int fd) = ::fsync;                       // replaced by tests, to fail
};

// For which snapshot a pack was written: garbage once no checkpoint refers to it and all kept are newer.
struct pack_purpose {
  std::uint64_t job{};  // hash_of_job()
  timeline_number timeline;
  step_number step;
  bool operator==(const pack_purpose&) const = default;
};

std::uint64_t hash_of_job(std::string_view job);
inline pack_purpose purpose_of(const checkpoint_key& key) {
  return {hash_of_job(key.job), key.timeline, key.step};
}

struct pack_header {
  pack_name name;
  pack_purpose purpose;
  bool operator==(const pack_header&) const = default;
};

// Appends to the packs of one incarnation, one pack at a time. Not thread-safe.
class pack_writer {
 public:
  pack_writer(std::filesystem::path folder, incarnation who, pack_options options = {});

  // Ends the pack, condemned or not; the next append starts another one, for `purpose`.
  void begin(const pack_purpose& purpose);
  // Written, but not durable before sync() has succeeded. The kind is for people: equal bytes are one chunk.
  result<chunk_record> append(chunk_kind kind, std::span<const std::byte> bytes);
  // `stored` are the bytes of `decoded_size` others, of that hash, by a codec.
  result<chunk_record> append(chunk_kind kind, chunk_codec codec, std::span<const std::byte> stored,
                              const content_hash& hash, std::uint64_t decoded_size);
  // Makes durable all that was appended. A failed write or fsync condemns the pack, for what the disk then
  // holds is unknown (the kernel drops dirty pages of a failed fsync): append and sync fail from then on.
  result<void> sync();

  bool is_condemned() const { return !condemned_.empty(); }

 private:
  result<void> start();
  result<void> write(std::span<const std::span<const std::byte>> parts);
  error condemn(const error& cause);

  std::filesystem::path folder_;
  incarnation who_;
  pack_options options_;
  pack_purpose purpose_;
  std::uint32_t sequence_ = 0;
  std::string name_;
  file_descriptor file_;
  std::uint64_t end_ = 0;
  bool folder_synced_ = false;
  std::string condemned_;
};

// What a scan of a pack found, from its beginning.
struct pack_scan {
  std::uint64_t records = 0;
  std::uint64_t valid_bytes = 0;  // up to the end of the last whole record
  std::uint64_t file_bytes = 0;
  std::string why;  // empty when the file ends with a whole record
  bool is_complete() const { return why.empty(); }
};

class pack_reader {
 public:
  static result<pack_reader> open(const std::filesystem::path& folder, const std::string& name);

  // Reads the record's header alone: it is there, whole, and says what `record` says.
  result<void> check(const chunk_record& record) const;
  // Fills `out`, which is of the decoded size; verifies checksum and hash. Of a delta, `base` is what
  // record.base names, decoded. After an error it holds garbage.
  result<void> read(const chunk_record& record, std::span<std::byte> out,
                    std::span<const std::byte> base = {}) const;
  // Visits each whole record with a right checksum; stops at the first that is not, and says why.
  pack_scan scan(const std::function<void(chunk_kind, const chunk_record&)>& visit) const;

  const pack_header& header() const { return header_; }

 private:
  pack_reader(file_descriptor file, std::filesystem::path path, const pack_header& header);
  result<void> read_payload(const chunk_record& record, std::span<std::byte> out) const;
  result<record_header> read_header(std::uint64_t offset, std::uint64_t file_bytes) const;
  error corrupt(std::uint64_t offset, const std::string& why) const;

  file_descriptor file_;
  std::filesystem::path path_;
  pack_header header_;
};

}  // namespace perdura::storage
