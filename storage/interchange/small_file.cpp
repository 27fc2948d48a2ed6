#include "storage/interchange/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <span>
#include <string>

#include "storage/file.hpp"

namespace perdura::interchange {

result<void> write_small_file(const std::filesystem::path& path, std::string_view text) {
  const auto temporary =
      path.parent_path() / ("." + path.filename().string() + "." + std::to_string(::getpid()) + ".writing");
  auto file = storage::open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) return file.failure();
  const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(text))};
  auto done = storage::write_all(*file, parts, temporary);
  if (done && ::fsync(file->get()) != 0) done = storage::io_error("make durable", temporary);
  if (done && ::rename(temporary.c_str(), path.c_str()) != 0)
    done = storage::io_error("give its name to", path);
  if (!done) {
    ::unlink(temporary.c_str());
    return done;
  }
  return storage::sync_folder(path.parent_path().empty() ? std::filesystem::path(".") : path.parent_path());
}

}  // namespace perdura::interchange
