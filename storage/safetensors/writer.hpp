// Writes one safetensors file piece by piece: no tensor need ever be whole in memory. The file gets its name
// when all of it is durable, so that whoever finds it finds it whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/file.hpp"
#include "storage/safetensors/header.hpp"

namespace perdura::safetensors {

enum class if_there { refuse, replace };

class writer {
 public:
  // Of `h` names, types and shapes count; places are given. The folder must exist. Errors: already_exists;
  // those of lay_out() and of the disk.
  static result<writer> create(const std::filesystem::path& path, header h, if_there then = if_there::refuse);
  writer(writer&&) = default;
  writer& operator=(writer&&) = delete;
  // What was not finished is removed.
  ~writer();

  const header& contents() const { return header_; }
  // The next bytes of a tensor; tensors may be written in turns. Errors: invalid_argument for an unknown name
  // or more bytes than it has.
  result<void> append(std::string_view name, std::span<const std::byte> bytes);
  // Error invalid_argument: a tensor is not complete, by name.
  result<void> finish();

 private:
  writer(std::filesystem::path path, std::filesystem::path temporary, storage::file_descriptor file, header h,
         std::uint64_t data_at);

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  storage::file_descriptor file_;
  header header_;
  std::uint64_t data_at_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<std::uint64_t> written_;  // bytes of each tensor
};

}  // namespace perdura::safetensors
