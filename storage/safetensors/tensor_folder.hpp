// The tensors of a model as they are handed around: one file, a folder with one file in it, or shards that an
// index names ("weight_map": {NAME: FILE}).
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/safetensors/reader.hpp"

namespace perdura::safetensors {

inline constexpr std::size_t shards_max = 512;  // all are held open

// May be read by several threads at once.
class tensor_folder {
 public:
  // A file, or a folder with model.safetensors, diffusion_pytorch_model.safetensors or the index of either.
  // Errors: not_found lists what was looked for; corrupt where index and shards disagree, or a shard's name
  // is more than a file's name in this folder.
  static result<tensor_folder> open(const std::filesystem::path& path);

  // Sorted.
  std::vector<std::string> names() const;
  const tensor_info* find(std::string_view name) const;
  // As reader::read. Error not_found.
  result<void> read(std::string_view name, std::uint64_t offset, std::span<std::byte> out) const;
  const std::map<std::string, std::string>& metadata() const { return files_.front().contents().metadata; }

 private:
  struct place {
    std::size_t file;
    const tensor_info* tensor;  // the reader's; readers are not moved once this points into them
  };
  result<void> add_file(const std::filesystem::path& path);
  result<void> add_shards(const std::filesystem::path& index);

  std::vector<reader> files_;
  std::map<std::string, place, std::less<>> tensors_;
};

// Without a path's separators, not hidden, ending in ".safetensors": it becomes a path.
bool is_shard_name(std::string_view name);

}  // namespace perdura::safetensors
