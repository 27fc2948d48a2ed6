#include "storage/object_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <span>

#include "storage/file.hpp"

namespace perdura::storage {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t name_parts_max = 3;
constexpr std::size_t name_part_bytes_max = 100;
constexpr const char* temporary_folder = ".writing";
constexpr int term_claims_max = 10000;

bool is_name_part(std::string_view part) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !part.empty() && part.size() <= name_part_bytes_max && part.front() != '.' &&
         std::all_of(part.begin(), part.end(), is_allowed);
}

bool is_object_name(std::string_view name) {
  std::size_t parts = 0;
  while (++parts <= name_parts_max) {
    const auto slash = name.find('/');
    if (!is_name_part(name.substr(0, slash))) return false;
    if (slash == name.npos) return true;
    name.remove_prefix(slash + 1);
  }
  return false;
}

// Unique among the processes and machines that share the folder: created with O_EXCL, tried again.
result<std::pair<file_descriptor, fs::path>> create_temporary(const fs::path& folder) {
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const auto path = folder / (std::to_string(::getpid()) + "-" + std::to_string(counter++));
    auto file = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
    if (file) return std::pair(std::move(*file), path);
    if (file.failure().code != errc::already_exists) return file.failure();
  }
  return error{errc::exhausted,
               "cannot find a free name in " + folder.string() + ": remove what is left in it"};
}

// The file at `temporary` gets its name, unless that is taken. link(2) is atomic and never replaces.
result<void> publish(const file_descriptor& file, const fs::path& temporary, const fs::path& target,
                     std::string_view bytes) {
  const std::array<std::span<const std::byte>, 1> parts{std::as_bytes(std::span(bytes))};
  if (auto written = write_all(file, parts, temporary); !written) return written;
  if (::fsync(file.get()) != 0) return io_error("make durable", temporary);
  if (::link(temporary.c_str(), target.c_str()) == 0) return sync_folder(target.parent_path());
  error taken = io_error("link into place", target);
  // It is relied upon that it is there: whoever put it may have died before this.
  if (taken.code == errc::already_exists)
    if (auto synced = sync_folder(target.parent_path()); !synced) return synced;
  return taken;
}

}  // namespace

result<fs::path> object_folder::path_of(const std::string& name) const {
  if (is_object_name(name)) return root_ / name;
  return error{errc::invalid_argument,
               "'" + name.substr(0, 2 * name_part_bytes_max) +
                   "' cannot name an object: one to three parts of letters, digits, '.', "
                   "'_' and '-' with '/' between, none starting with '.'"};
}

result<void> object_folder::put_if_absent(const std::string& name, std::string_view bytes) const {
  auto target = path_of(name);
  if (!target) return target.failure();
  if (bytes.size() > object_bytes_max)
    return error{errc::exhausted, "the object " + name + " of " + std::to_string(bytes.size()) +
                                      " bytes is larger than " + std::to_string(object_bytes_max)};
  if (auto made = make_folders(target->parent_path()); !made) return made;
  if (auto made = make_folders(root_ / temporary_folder); !made) return made;
  auto temporary = create_temporary(root_ / temporary_folder);
  if (!temporary) return temporary.failure();
  auto published = publish(temporary->first, temporary->second, *target, bytes);
  ::unlink(temporary->second.c_str());
  return published;
}

result<std::string> object_folder::get(const std::string& name) const {
  auto path = path_of(name);
  if (!path) return path.failure();
  auto file = open_file(*path, O_RDONLY);
  if (!file) return file.failure();
  auto size = size_of(*file, *path);
  if (!size) return size.failure();
  if (*size > object_bytes_max)
    return error{errc::exhausted, path->string() + " of " + std::to_string(*size) + " bytes is larger than " +
                                      std::to_string(object_bytes_max)};
  std::string bytes(*size, '\0');
  if (auto read = read_exact(*file, 0, std::as_writable_bytes(std::span(bytes)), *path); !read)
    return read.failure();
  return bytes;
}

result<bool> object_folder::exists(const std::string& name) const {
  auto path = path_of(name);
  if (!path) return path.failure();
  if (::access(path->c_str(), F_OK) == 0) return true;
  if (errno == ENOENT || errno == ENOTDIR) return false;
  return io_error("look for", *path);
}

result<void> object_folder::remove(const std::string& name) const {
  auto path = path_of(name);
  if (!path) return path.failure();
  if (::unlink(path->c_str()) != 0 && errno != ENOENT) return io_error("remove", *path);
  // Also when it was gone: whoever removed it may have died before this.
  auto synced = sync_folder(path->parent_path());
  if (!synced && synced.failure().code == errc::not_found) return {};
  return synced;
}

result<std::vector<std::string>> object_folder::list(const std::string& folder) const {
  auto path = path_of(folder);
  if (!path) return path.failure();
  std::vector<std::string> names;
  std::error_code failed;
  fs::recursive_directory_iterator at(*path, failed);
  for (const fs::recursive_directory_iterator end; !failed && at != end; at.increment(failed)) {
    std::error_code gone;  // between listing and looking: no object then
    if (!at->is_regular_file(gone)) continue;
    auto name = at->path().lexically_relative(root_).generic_string();
    if (is_object_name(name)) names.push_back(std::move(name));
  }
  if (failed && failed != std::errc::no_such_file_or_directory)
    return error{errc::io, "cannot list " + path->string() + ": " + failed.message()};
  std::sort(names.begin(), names.end());
  return names;
}

result<void> object_folder::remove_leftovers(std::chrono::seconds older_than) const {
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator(root_ / temporary_folder, failed)) {
    std::error_code gone;
    const auto written = entry.last_write_time(gone);
    if (!gone && fs::file_time_type::clock::now() - written >= older_than) fs::remove(entry.path(), gone);
  }
  if (failed && failed != std::errc::no_such_file_or_directory)
    return error{errc::io, "cannot list " + (root_ / temporary_folder).string() + ": " + failed.message()};
  return {};
}

result<term_number> claim_term(const object_folder& folder, std::string_view owner) {
  auto names = folder.list("terms");
  if (!names) return names.failure();
  std::uint32_t highest = 0;
  for (const auto& name : *names) {
    const std::string_view digits = std::string_view(name).substr(name.find('/') + 1);
    std::uint32_t term{};
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), term);
    if (failed == std::errc{} && end == digits.data() + digits.size()) highest = std::max(highest, term);
  }
  for (int claim = 0; claim < term_claims_max && highest < UINT32_MAX; ++claim) {
    char name[24];
    std::snprintf(name, sizeof name, "terms/%06u", ++highest);
    auto put = folder.put_if_absent(name, owner);
    if (put) return term_number(highest);
    if (put.failure().code != errc::already_exists) return put.failure();
  }
  return error{errc::exhausted,
               "cannot claim a term in " + folder.root().string() + ": all that were tried are taken"};
}

}  // namespace perdura::storage
