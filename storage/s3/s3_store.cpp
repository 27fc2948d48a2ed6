#include "storage/s3/s3_store.hpp"

#include <fcntl.h>

#include <algorithm>
#include <charconv>

#include "storage/file.hpp"
#include "storage/object_folder.hpp"
#include "storage/s3/upload.hpp"

namespace perdura::storage::s3 {
namespace {

constexpr int list_pages_max = 10'000;

result<void> check_name(const std::string& name) {
  if (is_stored_name(name)) return {};
  return error{errc::invalid_argument, "'" + name.substr(0, 100) + "' cannot name an object"};
}

std::optional<std::uint64_t> number_of(const std::string& text) {
  std::uint64_t n{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

std::string range_text(std::uint64_t offset, std::size_t size) {
  return std::to_string(offset) + "-" + std::to_string(offset + size - 1);
}

// All of what was asked for came, and it is the part that was asked for: "bytes 0-9/100". A service that does
// not know ranges sends the whole, which is right only if that is the part.
std::optional<attempt> judge_range(const http_reply& reply, std::uint64_t offset, std::size_t size) {
  const bool is_part = reply.status == 206 &&
                       reply.header("content-range").starts_with("bytes " + range_text(offset, size) + "/");
  const bool is_whole = reply.status == 200 && offset == 0;
  if (reply.received == size && (is_part || is_whole)) return std::nullopt;
  return attempt{fate::broken, 0, {}, {}};
}

}  // namespace

result<std::unique_ptr<s3_store>> s3_store::make(s3_options options) {
  auto made = client::make(std::move(options));
  if (!made) return made.failure();
  return std::unique_ptr<s3_store>(new s3_store(*std::move(made)));
}

result<void> s3_store::put_if_absent(const std::string& name, std::string_view bytes) const {
  if (bytes.size() > object_bytes_max)
    return error{errc::exhausted, "the object " + name + " of " + std::to_string(bytes.size()) +
                                      " bytes is larger than " + std::to_string(object_bytes_max)};
  const std::lock_guard lock(mutex_);
  return put(name, bytes, put_mode::if_absent);
}

result<void> s3_store::put(const std::string& name, std::string_view bytes, put_mode mode) const {
  if (auto valid = check_name(name); !valid) return valid;
  if (mode == put_mode::if_absent && !client_->options().has_conditional_puts) {
    const auto there = look(name);
    if (!there) return there.failure();
    if (*there) return error{errc::already_exists, name + " is there already (" + where() + ")"};
  }
  return put_bytes(*client_, name, bytes, mode);
}

result<void> s3_store::put_file(const std::string& name, const std::filesystem::path& source,
                                put_mode mode) const {
  if (auto valid = check_name(name); !valid) return valid;
  auto file = open_file(source, O_RDONLY);
  if (!file) return file.failure();
  const auto size = size_of(*file, source);
  if (!size) return size.failure();
  const std::lock_guard lock(mutex_);
  if (*size <= client_->options().part_bytes) {
    std::string bytes(*size, '\0');
    if (auto read = read_exact(*file, 0, std::as_writable_bytes(std::span(bytes)), source); !read)
      return read;
    return put(name, bytes, mode);
  }
  if (mode == put_mode::if_absent) {
    // Before all that is sent, not only at its end.
    const auto there = look(name);
    if (!there) return there.failure();
    if (*there) return error{errc::already_exists, name + " is there already (" + where() + ")"};
  }
  return put_in_parts(*client_, name, source, mode);
}

result<std::string> s3_store::get(const std::string& name) const {
  if (auto valid = check_name(name); !valid) return valid.failure();
  const std::lock_guard lock(mutex_);
  return fetch(name);
}

result<std::string> s3_store::fetch(const std::string& name) const {
  s3_request request{"GET", client_->key_of(name)};
  request.text_bytes_max = object_bytes_max;
  auto answer = client_->send(request);
  if (!answer) return answer.failure();
  if (!answer->is_success()) return client_->failure_of("read " + name, *answer);
  return std::move(answer->reply.text);
}

result<void> s3_store::get_range(const std::string& name, std::uint64_t offset,
                                 std::span<std::byte> out) const {
  if (auto valid = check_name(name); !valid) return valid;
  if (out.empty()) return {};
  s3_request request{"GET", client_->key_of(name)};
  request.headers.emplace_back("range", "bytes=" + range_text(offset, out.size()));
  request.into = out;
  request.judge = [&](const http_reply& reply) { return judge_range(reply, offset, out.size()); };
  const std::lock_guard lock(mutex_);
  const auto answer = client_->send(request);
  if (!answer) return answer.failure();
  if (!answer->is_success()) return client_->failure_of("read from " + name, *answer);
  return {};
}

result<std::optional<std::uint64_t>> s3_store::size(const std::string& name) const {
  if (auto valid = check_name(name); !valid) return valid.failure();
  const std::lock_guard lock(mutex_);
  return look(name);
}

result<std::optional<std::uint64_t>> s3_store::look(const std::string& name) const {
  const auto answer = client_->send({"HEAD", client_->key_of(name)});
  if (!answer) return answer.failure();
  if (answer->reply.status == 404) return std::optional<std::uint64_t>{};
  if (!answer->is_success()) return client_->failure_of("look at " + name, *answer);
  const auto size = number_of(answer->reply.header("content-length"));
  if (!size)
    return error{errc::corrupt, "the service does not say how long " + name + " is (" + where() + ")"};
  return size;
}

result<void> s3_store::remove(const std::string& name) const {
  if (auto valid = check_name(name); !valid) return valid;
  const std::lock_guard lock(mutex_);
  const auto answer = client_->send({"DELETE", client_->key_of(name)});
  if (!answer) return answer.failure();
  if (answer->is_success() || answer->failure.code == "NoSuchKey") return {};
  return client_->failure_of("remove " + name, *answer);
}

result<std::vector<object_entry>> s3_store::list(const std::string& folder) const {
  if (auto valid = check_name(folder); !valid) return valid.failure();
  const std::lock_guard lock(mutex_);
  std::vector<object_entry> found;
  const auto root = client_->key_of("");
  std::string next;
  for (int page = 0; page < list_pages_max; ++page) {
    s3_request request{
        "GET", "", {{"list-type", "2"}, {"prefix", root + folder + "/"}, {"encoding-type", "url"}}};
    if (!next.empty()) request.query.emplace_back("continuation-token", next);
    request.text_bytes_max = xml_bytes_max;
    const auto answer = client_->send(request);
    if (!answer) return answer.failure();
    if (!answer->is_success()) return client_->failure_of("list " + folder, *answer);
    auto listed = parse_listing(answer->reply.text);
    if (!listed)
      return error{listed.failure().code,
                   "cannot list " + folder + " (" + where() + "): " + listed.failure().message};
    for (auto& entry : listed->entries) {
      if (!entry.name.starts_with(root)) continue;
      entry.name.erase(0, root.size());
      if (is_stored_name(entry.name)) found.push_back(std::move(entry));
    }
    if (found.size() > list_names_max) break;
    if (listed->next.empty()) {
      std::sort(found.begin(), found.end());
      return found;
    }
    next = listed->next;
  }
  return error{errc::exhausted, "the list of " + folder + " does not end (" + where() + "): more than " +
                                    std::to_string(list_names_max) + " names, or too many pages"};
}

}  // namespace perdura::storage::s3
