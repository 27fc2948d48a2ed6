// RocksDB as the coordinator uses it: few column families, small buffers, one writer. Private here.
#pragma once

#include <rocksdb/db.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::storage {

class rocks_store {
 public:
  // Family 0 is RocksDB's default one and holds the format version; `families` are numbered from 1. Errors:
  // refused (another process has it open), version_mismatch, corrupt, io.
  static result<std::unique_ptr<rocks_store>> open(const std::filesystem::path& folder,
                                                   const std::vector<std::string>& families,
                                                   std::uint32_t format_version);
  ~rocks_store();
  rocks_store(const rocks_store&) = delete;
  rocks_store& operator=(const rocks_store&) = delete;

  // To be called before a batch is made. After a write that failed RocksDB takes no other (with assertions,
  // as Debian builds it, the next one even ends the process), so it is opened anew here; while that fails, so
  // does every call.
  result<void> ready();
  rocksdb::ColumnFamilyHandle* family(std::size_t number) const { return handles_.at(number); }
  result<std::optional<std::string>> get(std::size_t family_number, std::string_view key) const;
  result<void> write(rocksdb::WriteBatch& batch, bool sync);
  // Must not outlive the store. Ask status() when it has come to its end.
  std::unique_ptr<rocksdb::Iterator> iterate(std::size_t family_number) const;
  error failure(const std::string& attempt, const rocksdb::Status& status) const;

 private:
  rocks_store(std::filesystem::path folder, std::vector<std::string> families)
      : folder_(std::move(folder)), families_(std::move(families)) {}
  result<void> open_database();
  void close_database();
  error closed() const;
  result<void> check_format(std::uint32_t format_version);

  std::filesystem::path folder_;
  std::vector<std::string> families_;
  bool has_failed_ = false;  // a write
  std::unique_ptr<rocksdb::DB> db_;
  std::vector<rocksdb::ColumnFamilyHandle*> handles_;
};

// Big-endian, so that keys sort as numbers do.
void append_number(std::string& key, std::uint64_t n);
void append_number(std::string& key, std::uint32_t n);
// The number in the last 8 bytes; keys are at least that long.
std::uint64_t number_at_end(std::string_view key);

}  // namespace perdura::storage
