// The few file operations that the store is made of; each error says what was tried, on which file, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>

#include "actors/base/result.hpp"

namespace perdura::storage {

class file_descriptor {
 public:
  file_descriptor() = default;
  explicit file_descriptor(int fd) : fd_(fd) {}
  file_descriptor(file_descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  file_descriptor& operator=(file_descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~file_descriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

// From errno, as the failed call left it.
error io_error(const std::string& attempt, const std::filesystem::path& path);

// `flags` as open(2) has them; close-on-exec is added.
result<file_descriptor> open_file(const std::filesystem::path& path, int flags);
result<std::uint64_t> size_of(const file_descriptor& file, const std::filesystem::path& path);
// Appends all bytes of the parts in order.
result<void> write_all(const file_descriptor& file, std::span<const std::span<const std::byte>> parts,
                       const std::filesystem::path& path);
// Fills `out` from `offset`; a file that ends sooner is an error.
result<void> read_exact(const file_descriptor& file, std::uint64_t offset, std::span<std::byte> out,
                        const std::filesystem::path& path);

// Makes the folder's entries (files created, linked, removed) durable.
result<void> sync_folder(const std::filesystem::path& folder);
// Creates what is missing of the path, durably.
result<void> make_folders(const std::filesystem::path& folder);

}  // namespace perdura::storage
