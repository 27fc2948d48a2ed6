#include "storage/folder_store.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <random>

#include "storage/file.hpp"

namespace perdura::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t copy_bytes = std::size_t{1} << 20;
// Where object_folder keeps what is on its way to its name, and clears away what died there.
constexpr const char* temporary_folder = ".writing";

// Among all machines that share the folder.
std::string unique_name() {
  std::random_device random;
  return "file-" + std::to_string(::getpid()) + "-" + std::to_string(random()) + std::to_string(random());
}

error not_a_name(const std::string& name) {
  return {errc::invalid_argument, "'" + name.substr(0, 100) + "' cannot name an object"};
}

result<void> copy_bytes_of(const fs::path& source, const file_descriptor& to, const fs::path& target) {
  auto from = open_file(source, O_RDONLY);
  if (!from) return from.failure();
  const auto size = size_of(*from, source);
  if (!size) return size.failure();
  std::vector<std::byte> piece(static_cast<std::size_t>(std::min<std::uint64_t>(*size, copy_bytes)));
  for (std::uint64_t at = 0; at < *size;) {
    const auto part = std::span(piece).first(std::min<std::uint64_t>(piece.size(), *size - at));
    if (auto read = read_exact(*from, at, part, source); !read) return read;
    const std::array<std::span<const std::byte>, 1> parts{part};
    if (auto written = write_all(to, parts, target); !written) return written;
    at += part.size();
  }
  if (::fsync(to.get()) != 0) return io_error("make durable", target);
  return {};
}

result<void> publish(const fs::path& temporary, const fs::path& target, put_mode mode) {
  // link(2) never replaces, rename(2) always does; both are atomic.
  const int failed = mode == put_mode::if_absent ? ::link(temporary.c_str(), target.c_str())
                                                 : ::rename(temporary.c_str(), target.c_str());
  if (failed != 0) return io_error("put into place", target);
  return sync_folder(target.parent_path());
}

}  // namespace

result<void> folder_store::put_if_absent(const std::string& name, std::string_view bytes) const {
  return objects_.put_if_absent(name, bytes);
}

result<void> folder_store::put_file(const std::string& name, const fs::path& source, put_mode mode) const {
  if (!is_stored_name(name)) return not_a_name(name);
  const fs::path target = objects_.root() / name;
  if (mode == put_mode::if_absent && fs::exists(target))
    return error{errc::already_exists, target.string() + " is there already"};
  if (auto made = make_folders(target.parent_path()); !made) return made;
  if (auto made = make_folders(objects_.root() / temporary_folder); !made) return made;
  const fs::path temporary = objects_.root() / temporary_folder / unique_name();
  auto file = open_file(temporary, O_WRONLY | O_CREAT | O_EXCL);
  if (!file) return file.failure();
  auto done = copy_bytes_of(source, *file, temporary);
  if (done) done = publish(temporary, target, mode);
  ::unlink(temporary.c_str());
  return done;
}

result<std::string> folder_store::get(const std::string& name) const { return objects_.get(name); }

result<void> folder_store::get_range(const std::string& name, std::uint64_t offset,
                                     std::span<std::byte> out) const {
  if (!is_stored_name(name)) return not_a_name(name);
  const fs::path path = objects_.root() / name;
  auto file = open_file(path, O_RDONLY);
  if (!file) return file.failure();
  return read_exact(*file, offset, out, path);
}

result<std::optional<std::uint64_t>> folder_store::size(const std::string& name) const {
  if (!is_stored_name(name)) return not_a_name(name);
  const fs::path path = objects_.root() / name;
  auto file = open_file(path, O_RDONLY);
  if (!file && file.failure().code == errc::not_found) return std::optional<std::uint64_t>{};
  if (!file) return file.failure();
  const auto size = size_of(*file, path);
  if (!size) return size.failure();
  return std::optional(*size);
}

result<void> folder_store::remove(const std::string& name) const { return objects_.remove(name); }

result<std::vector<object_entry>> folder_store::list(const std::string& folder) const {
  auto names = objects_.list(folder);
  if (!names) return names.failure();
  std::vector<object_entry> entries;
  for (auto& name : *names) {
    std::error_code gone;  // since it was listed
    const auto size = fs::file_size(objects_.root() / name, gone);
    if (!gone) entries.push_back({std::move(name), size});
  }
  return entries;
}

}  // namespace perdura::storage
