#include "storage/safetensors/reader.hpp"

#include <fcntl.h>

#include <array>

namespace perdura::safetensors {

namespace fs = std::filesystem;

namespace {

error in_file(const fs::path& path, const error& cause) {
  return {cause.code, path.string() + " is refused: " + cause.message};
}

result<std::uint64_t> header_size(const storage::file_descriptor& file, std::uint64_t file_bytes,
                                  const fs::path& path) {
  if (file_bytes < size_bytes)
    return error{errc::corrupt, "it has " + std::to_string(file_bytes) + " bytes, too few for a header"};
  std::array<std::byte, size_bytes> bytes;
  if (auto read = storage::read_exact(file, 0, bytes, path); !read) return read.failure();
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) size |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  if (size > file_bytes - size_bytes)
    return error{errc::corrupt, "it claims a header of " + std::to_string(size) + " bytes, but has " +
                                    std::to_string(file_bytes) +
                                    " in all: not a safetensors file, or cut off"};
  if (size > header_bytes_max)
    return error{errc::exhausted, "its header of " + std::to_string(size) + " bytes is larger than " +
                                      std::to_string(header_bytes_max)};
  return size;
}

}  // namespace

reader::reader(storage::file_descriptor file, fs::path path, std::uint64_t data_at, header h)
    : file_(std::move(file)), path_(std::move(path)), data_at_(data_at), header_(std::move(h)) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

result<reader> reader::open(const fs::path& path) {
  auto file = storage::open_file(path, O_RDONLY);
  if (!file) return file.failure();
  const auto file_bytes = storage::size_of(*file, path);
  if (!file_bytes) return file_bytes.failure();
  const auto size = header_size(*file, *file_bytes, path);
  if (!size) return in_file(path, size.failure());
  std::string text(*size, '\0');
  if (auto read = storage::read_exact(*file, size_bytes, std::as_writable_bytes(std::span(text)), path);
      !read)
    return read.failure();
  auto contents = parse_header(text, *file_bytes - size_bytes - *size);
  if (!contents) return in_file(path, contents.failure());
  return reader(std::move(*file), path, size_bytes + *size, *std::move(contents));
}

const tensor_info* reader::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &header_.tensors[found->second];
}

result<void> reader::read(const tensor_info& t, std::uint64_t offset, std::span<std::byte> out) const {
  if (offset > t.bytes() || out.size() > t.bytes() - offset)
    return error{errc::invalid_argument, "tensor '" + t.name + "' of " + path_.string() + " has " +
                                             std::to_string(t.bytes()) + " bytes, asked for were " +
                                             std::to_string(out.size()) + " from byte " +
                                             std::to_string(offset) + " on"};
  return storage::read_exact(file_, data_at_ + t.begin + offset, out, path_);
}

result<std::vector<std::byte>> reader::read(const tensor_info& t) const {
  std::vector<std::byte> bytes(t.bytes());
  if (auto filled = read(t, 0, bytes); !filled) return filled.failure();
  return bytes;
}

}  // namespace perdura::safetensors
