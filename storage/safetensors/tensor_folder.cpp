#include "storage/safetensors/tensor_folder.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <boost/json/serialize.hpp>
#include <set>

#include "storage/safetensors/strict_json.hpp"

namespace perdura::safetensors {

namespace fs = std::filesystem;
namespace json = boost::json;

namespace {

constexpr std::array stems{"diffusion_pytorch_model.safetensors", "model.safetensors"};
constexpr std::string_view suffix = ".safetensors";
constexpr std::size_t name_bytes_max = 255;
constexpr std::size_t listed_max = 8;

error in_index(const fs::path& index, const std::string& why) {
  return {errc::corrupt, index.string() + " is refused: " + why};
}

result<std::string> read_index(const fs::path& path) {
  auto file = storage::open_file(path, O_RDONLY);
  if (!file) return file.failure();
  const auto size = storage::size_of(*file, path);
  if (!size) return size.failure();
  if (*size > header_bytes_max)
    return error{errc::exhausted,
                 path.string() + " is larger than " + std::to_string(header_bytes_max) + " bytes"};
  std::string text(*size, '\0');
  if (auto read = storage::read_exact(*file, 0, std::as_writable_bytes(std::span(text)), path); !read)
    return read.failure();
  return text;
}

using weight_map = std::map<std::string, std::string>;

result<weight_map> parse_index(const fs::path& path) {
  const auto text = read_index(path);
  if (!text) return text.failure();
  const auto root = parse_strictly(*text);
  if (!root) return in_index(path, root.failure().message);
  const auto* object = root->if_object();
  const auto* listed = object == nullptr ? nullptr : object->if_contains("weight_map");
  const auto* map = listed == nullptr ? nullptr : listed->if_object();
  if (map == nullptr || map->empty()) return in_index(path, "it has no weight_map");
  weight_map files;
  for (const auto& [name, value] : *map) {
    const auto* file = value.if_string();
    if (file == nullptr || !is_shard_name({file->data(), file->size()}))
      return in_index(path, "tensor '" + std::string(name) + "' is in no file of this folder: " +
                                json::serialize(value).substr(0, name_bytes_max));
    files.emplace(std::string(name), std::string(*file));
  }
  return files;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), listed_max); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > listed_max ? text + " and " + std::to_string(names.size() - listed_max) + " more"
                                   : text;
}

}  // namespace

bool is_shard_name(std::string_view name) {
  return name.size() > suffix.size() && name.size() <= name_bytes_max && name.ends_with(suffix) &&
         name.front() != '.' && name.find('/') == name.npos && name.find('\0') == name.npos;
}

result<tensor_folder> tensor_folder::open(const fs::path& path) {
  std::error_code failed;
  tensor_folder folder;
  const auto opened = [&](result<void> done) -> result<tensor_folder> {
    if (!done) return done.failure();
    return std::move(folder);
  };
  if (!fs::is_directory(path, failed)) return opened(folder.add_file(path));
  for (const auto* stem : stems) {
    if (fs::exists(path / stem, failed)) return opened(folder.add_file(path / stem));
    const auto index = path / (std::string(stem) + ".index.json");
    if (fs::exists(index, failed)) return opened(folder.add_shards(index));
  }
  return error{errc::not_found, "no weights in " + path.string() + ": looked for " + stems[0] + ", " +
                                    stems[1] + " and the .index.json of either"};
}

result<void> tensor_folder::add_file(const fs::path& path) {
  auto file = reader::open(path);
  if (!file) return file.failure();
  files_.push_back(*std::move(file));
  for (const auto& t : files_.back().contents().tensors) tensors_.emplace(t.name, place{0, &t});
  return {};
}

result<void> tensor_folder::add_shards(const fs::path& index) {
  const auto files = parse_index(index);
  if (!files) return files.failure();
  std::set<std::string> shards;
  for (const auto& [name, shard] : *files) shards.insert(shard);
  if (shards.size() > shards_max)
    return error{errc::exhausted, index.string() + " names " + std::to_string(shards.size()) +
                                      " files; at most " + std::to_string(shards_max) + " are read"};
  files_.reserve(shards.size());
  for (const auto& shard : shards) {
    auto file = reader::open(index.parent_path() / shard);
    if (!file) return file.failure();
    files_.push_back(*std::move(file));
    std::vector<std::string> unlisted;
    for (const auto& t : files_.back().contents().tensors) {
      const auto at = files->find(t.name);
      if (at == files->end() || at->second != shard)
        unlisted.push_back("'" + t.name + "'");
      else
        tensors_.emplace(t.name, place{files_.size() - 1, &t});
    }
    if (!unlisted.empty())
      return in_index(index, "it does not name what is in " + shard + ": " + listed(unlisted));
  }
  std::vector<std::string> missing;
  for (const auto& [name, shard] : *files)
    if (!tensors_.contains(name)) missing.push_back("'" + name + "' in " + shard);
  if (!missing.empty()) return in_index(index, "it names what is not there: " + listed(missing));
  return {};
}

std::vector<std::string> tensor_folder::names() const {
  std::vector<std::string> all;
  for (const auto& [name, at] : tensors_) all.push_back(name);
  return all;
}

const tensor_info* tensor_folder::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.tensor;
}

result<void> tensor_folder::read(std::string_view name, std::uint64_t offset,
                                 std::span<std::byte> out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return error{errc::not_found, "there is no tensor '" + std::string(name) + "'"};
  return files_[found->second.file].read(*found->second.tensor, offset, out);
}

}  // namespace perdura::safetensors
