#include "storage/safetensors/writer.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

namespace perdura::safetensors {

namespace fs = std::filesystem;

namespace {

result<void> write_at(const storage::file_descriptor& file, std::uint64_t offset,
                      std::span<const std::byte> bytes, const fs::path& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return storage::io_error("write to", path);
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
  return {};
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

writer::writer(fs::path path, fs::path temporary, storage::file_descriptor file, header h,
               std::uint64_t data_at)
    : path_(std::move(path)),
      temporary_(std::move(temporary)),
      file_(std::move(file)),
      header_(std::move(h)),
      data_at_(data_at),
      written_(header_.tensors.size(), 0) {
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) by_name_.emplace(header_.tensors[i].name, i);
}

writer::~writer() {
  if (file_.is_open()) ::unlink(temporary_.c_str());
}

result<writer> writer::create(const fs::path& path, header h, if_there then) {
  std::error_code unknown;
  if (then == if_there::refuse && fs::exists(path, unknown))
    return error{errc::already_exists, path.string() + " is there already"};
  if (auto placed = lay_out(h); !placed) return placed.failure();
  const auto text = encode_header(h);
  if (!text) return text.failure();
  // A leading dot: no listing takes it for a finished one.
  const fs::path temporary =
      folder_of(path) / ("." + path.filename().string() + "." + std::to_string(::getpid()) + ".writing");
  auto file = storage::open_file(temporary, O_WRONLY | O_CREAT | O_TRUNC);
  if (!file) return file.failure();
  writer made(path, temporary, std::move(*file), std::move(h), text->size());
  // Space is there or the disk says so now, not after hours.
  const auto size = static_cast<off_t>(text->size() + made.header_.data_bytes());
  if (const int failed = ::posix_fallocate(made.file_.get(), 0, size); failed == ENOSPC || failed == EFBIG) {
    errno = failed;
    return storage::io_error("reserve " + std::to_string(size) + " bytes for", path);
  }
  const auto head = std::as_bytes(std::span(*text));
  if (auto written = write_at(made.file_, 0, head, temporary); !written) return written.failure();
  return result<writer>(std::move(made));
}

result<void> writer::append(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end())
    return error{errc::invalid_argument,
                 "no tensor '" + std::string(name) + "' was announced for " + path_.string()};
  const auto& t = header_.tensors[found->second];
  std::uint64_t& written = written_[found->second];
  if (bytes.size() > t.bytes() - written)
    return error{errc::invalid_argument, "tensor '" + t.name + "' of " + path_.string() + " has " +
                                             std::to_string(t.bytes()) + " bytes; more were written"};
  if (auto done = write_at(file_, data_at_ + t.begin + written, bytes, temporary_); !done) return done;
  written += bytes.size();
  return {};
}

result<void> writer::finish() {
  for (std::size_t i = 0; i < written_.size(); ++i)
    if (written_[i] != header_.tensors[i].bytes())
      return error{errc::invalid_argument, "tensor '" + header_.tensors[i].name + "' of " + path_.string() +
                                               " is not complete: " + std::to_string(written_[i]) + " of " +
                                               std::to_string(header_.tensors[i].bytes()) + " bytes"};
  if (::fsync(file_.get()) != 0) return storage::io_error("make durable", temporary_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return storage::io_error("give its name to", path_);
  file_.reset();
  return storage::sync_folder(folder_of(path_));
}

}  // namespace perdura::safetensors
