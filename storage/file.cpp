#include "storage/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace perdura::storage {

void file_descriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

error io_error(const std::string& attempt, const std::filesystem::path& path) {
  const int code = errno;
  const errc kind = code == ENOENT ? errc::not_found : code == EEXIST ? errc::already_exists : errc::io;
  return {kind, "cannot " + attempt + " " + path.string() + ": " + std::generic_category().message(code)};
}

result<file_descriptor> open_file(const std::filesystem::path& path, int flags) {
  int fd;
  do fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  while (fd < 0 && errno == EINTR);
  if (fd < 0) return io_error((flags & O_CREAT) != 0 ? "create" : "open", path);
  return file_descriptor(fd);
}

result<std::uint64_t> size_of(const file_descriptor& file, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return io_error("find the size of", path);
  if (!S_ISREG(status.st_mode))
    return error{errc::invalid_argument, path.string() + " is not a regular file"};
  return static_cast<std::uint64_t>(status.st_size);
}

result<void> write_all(const file_descriptor& file, std::span<const std::span<const std::byte>> parts,
                       const std::filesystem::path& path) {
  for (std::span<const std::byte> rest : parts) {
    while (!rest.empty()) {
      const ssize_t n = ::write(file.get(), rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return io_error("write to", path);
      rest = rest.subspan(static_cast<std::size_t>(n));
    }
  }
  return {};
}

result<void> read_exact(const file_descriptor& file, std::uint64_t offset, std::span<std::byte> out,
                        const std::filesystem::path& path) {
  while (!out.empty()) {
    const ssize_t n = ::pread(file.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("read", path);
    if (n == 0)
      return error{errc::corrupt, path.string() + " ends at offset " + std::to_string(offset) + ", " +
                                      std::to_string(out.size()) + " bytes too soon"};
    out = out.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

result<void> sync_folder(const std::filesystem::path& folder) {
  auto file = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (!file) return file.failure();
  if (::fsync(file->get()) != 0) return io_error("make durable the folder", folder);
  return {};
}

result<void> make_folders(const std::filesystem::path& folder) {
  std::error_code ignored;
  const auto parent = folder.has_parent_path() ? folder.parent_path() : std::filesystem::path(".");
  // Whoever made it may have died before the sync, unless none of us could. The parent was durable before.
  if (std::filesystem::is_directory(folder, ignored))
    return ::access(parent.c_str(), R_OK | W_OK) == 0 ? sync_folder(parent) : result<void>();
  if (parent != folder)
    if (auto made = make_folders(parent); !made) return made;
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return io_error("create the folder", folder);
  return sync_folder(parent);
}

}  // namespace perdura::storage
