// A tier that is a folder, shared by processes (or machines): small immutable objects by name, each there
// whole or not at all, the first writer of a name wins.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"

namespace perdura::storage {

inline constexpr std::uint64_t object_bytes_max = std::uint64_t{64} << 20;

// Names have one to three parts with '/' between; a part is 1 to 100 letters, digits, '.', '_' and '-' and
// does not start with '.'.
class object_folder {
 public:
  // The folder is created by the first put.
  explicit object_folder(std::filesystem::path root) : root_(std::move(root)) {}

  // Durable on success. Error already_exists: another was first, nothing has changed.
  result<void> put_if_absent(const std::string& name, std::string_view bytes) const;
  // Error not_found; also `exhausted` above object_bytes_max.
  result<std::string> get(const std::string& name) const;
  result<bool> exists(const std::string& name) const;
  // Durable on success; that there was no such object is none of its errors.
  result<void> remove(const std::string& name) const;
  // Names that start with `folder` + "/", sorted.
  result<std::vector<std::string>> list(const std::string& folder) const;
  // What writers left behind that died in put_if_absent that long ago.
  result<void> remove_leftovers(std::chrono::seconds older_than) const;

  const std::filesystem::path& root() const { return root_; }

 private:
  result<std::filesystem::path> path_of(const std::string& name) const;
  std::filesystem::path root_;
};

// The coordinator's next life: one above the highest term there is, claimed durably. Concurrent claimers get
// different terms. `owner` is kept with it, for people.
result<term_number> claim_term(const object_folder& folder, std::string_view owner);

}  // namespace perdura::storage
