// Reads one safetensors file: the header at once, tensors (or parts of them) as they are asked for.
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

// May be read by several threads at once.
class reader {
 public:
  // The header is checked whole. Errors: corrupt and exhausted, with the file; those of opening.
  static result<reader> open(const std::filesystem::path& path);

  const header& contents() const { return header_; }
  const std::filesystem::path& path() const { return path_; }
  // None: there is no such tensor.
  const tensor_info* find(std::string_view name) const;
  // Fills `out` with bytes of the tensor, which must be one of contents(), from byte `offset` of it on.
  // Errors: invalid_argument where it has fewer; corrupt where the file was cut since it was opened.
  result<void> read(const tensor_info& t, std::uint64_t offset, std::span<std::byte> out) const;
  result<std::vector<std::byte>> read(const tensor_info& t) const;

 private:
  reader(storage::file_descriptor file, std::filesystem::path path, std::uint64_t data_at, header h);

  storage::file_descriptor file_;
  std::filesystem::path path_;
  std::uint64_t data_at_;
  header header_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

}  // namespace perdura::safetensors
