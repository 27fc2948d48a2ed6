// A tier that is a folder: a shared file system, another disk.
#pragma once

#include "storage/object_folder.hpp"
#include "storage/object_store.hpp"

namespace perdura::storage {

class folder_store : public object_store {
 public:
  explicit folder_store(std::filesystem::path root) : objects_(std::move(root)) {}

  result<void> put_if_absent(const std::string& name, std::string_view bytes) const override;
  result<void> put_file(const std::string& name, const std::filesystem::path& source,
                        put_mode mode) const override;
  result<std::string> get(const std::string& name) const override;
  result<void> get_range(const std::string& name, std::uint64_t offset,
                         std::span<std::byte> out) const override;
  result<std::optional<std::uint64_t>> size(const std::string& name) const override;
  result<void> remove(const std::string& name) const override;
  result<std::vector<object_entry>> list(const std::string& folder) const override;
  std::string where() const override { return objects_.root().string(); }

 private:
  object_folder objects_;
};

}  // namespace perdura::storage
