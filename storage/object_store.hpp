// A tier: immutable objects by name, in a folder or a bucket. All that mirrors and people need of one; the
// store that training writes into is always a folder (object_folder.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::storage {

struct object_entry {
  std::string name;
  std::uint64_t size{};
  auto operator<=>(const object_entry&) const = default;
};

enum class put_mode : std::uint8_t { if_absent, replace };

// Names as object_folder has them. Each object is there whole or not at all. Errors of all calls: unavailable
// and timeout (worth another try later), refused, io.
class object_store {
 public:
  object_store() = default;
  virtual ~object_store() = default;
  object_store(const object_store&) = delete;
  object_store& operator=(const object_store&) = delete;

  // Durable on success. Error already_exists: another was first, nothing has changed.
  virtual result<void> put_if_absent(const std::string& name, std::string_view bytes) const = 0;
  // The file's bytes as of now, of any size, in bounded memory.
  virtual result<void> put_file(const std::string& name, const std::filesystem::path& source,
                                put_mode mode) const = 0;
  // Error not_found; `exhausted` above object_bytes_max.
  virtual result<std::string> get(const std::string& name) const = 0;
  // Fills `out` from `offset`; an object that ends sooner is an error (corrupt).
  virtual result<void> get_range(const std::string& name, std::uint64_t offset,
                                 std::span<std::byte> out) const = 0;
  virtual result<std::optional<std::uint64_t>> size(const std::string& name) const = 0;
  // That there was no such object is none of its errors.
  virtual result<void> remove(const std::string& name) const = 0;
  // Names that start with `folder` + "/", sorted; what is no object's name is left out.
  virtual result<std::vector<object_entry>> list(const std::string& folder) const = 0;
  // For people: "s3://bucket/prefix at host", never a secret.
  virtual std::string where() const = 0;
  // From any thread, for good: what is under way ends soon, with an error.
  virtual void cancel() const {}
};

// One to three parts with '/' between; a part is 1 to 100 letters, digits, '.', '_' and '-' and does not
// start with '.'.
bool is_stored_name(std::string_view name);

}  // namespace perdura::storage
