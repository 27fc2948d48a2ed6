// Uploads in parts. Their state is the service's: which uploads of a key are open, which parts they have.
#include <fcntl.h>

#include <algorithm>
#include <map>
#include <set>

#include "actors/base/log.hpp"
#include "storage/file.hpp"
#include "storage/s3/upload.hpp"

namespace perdura::storage::s3 {
namespace {

constexpr int begins_max = 3;     // an upload may be removed under us, by a rule of the bucket
constexpr int pages_max = 1'000;  // of a list
// Services put large objects together before they answer.
constexpr std::chrono::seconds complete_stall{300};

class part_upload {
 public:
  part_upload(client& c, std::string name, std::filesystem::path source, put_mode mode)
      : c_(c), name_(std::move(name)), key_(c.key_of(name_)), source_(std::move(source)), mode_(mode) {}

  result<void> run();

 private:
  using parts_by_number = std::map<std::uint32_t, uploaded_part>;

  result<void> attempt_once(bool& is_gone);
  result<std::vector<open_upload>> open_uploads();
  result<std::string> begin();
  result<parts_by_number> parts_there();
  result<void> send_parts(bool& is_gone);
  result<void> send_part(std::uint32_t number, std::string_view bytes, const md5_text& md5, bool& is_gone);
  result<void> complete(bool& is_gone);
  result<bool> is_whole();
  void abort(const std::string& id);
  void abort_others();

  client& c_;
  const std::string name_, key_;
  const std::filesystem::path source_;
  const put_mode mode_;
  file_descriptor file_;
  std::uint64_t size_ = 0;
  std::uint64_t part_bytes_ = 0;
  std::string id_;
  std::vector<uploaded_part> parts_;
  std::vector<md5_text> digests_;
};

result<void> part_upload::run() {
  auto file = open_file(source_, O_RDONLY);
  if (!file) return file.failure();
  file_ = std::move(*file);
  const auto size = size_of(file_, source_);
  if (!size) return size.failure();
  size_ = *size;
  part_bytes_ = part_size_for(size_, c_.options().part_bytes);
  for (int begun = 0; begun < begins_max; ++begun) {
    bool is_gone = false;
    auto done = attempt_once(is_gone);
    if (done) {
      abort_others();
      return done;
    }
    if (is_gone) continue;
    // What another try may go on with stays.
    const auto code = done.failure().code;
    if (code != errc::unavailable && code != errc::timeout && !id_.empty()) abort(id_);
    return done;
  }
  return error{errc::unavailable, "cannot put " + name_ + " (" + c_.where() +
                                      "): its upload in parts was removed by somebody else, several times"};
}

result<void> part_upload::attempt_once(bool& is_gone) {
  auto open = open_uploads();
  if (!open) return open.failure();
  const auto newest = std::max_element(open->begin(), open->end(), [](const auto& a, const auto& b) {
    return std::tie(a.initiated, a.id) < std::tie(b.initiated, b.id);
  });
  auto id = newest != open->end() ? result<std::string>(newest->id) : begin();
  if (!id) return id.failure();
  id_ = *id;
  if (auto sent = send_parts(is_gone); !sent) return sent;
  return complete(is_gone);
}

result<std::vector<open_upload>> part_upload::open_uploads() {
  std::vector<open_upload> found;
  std::string next_key, next_id;
  for (int page = 0; page < pages_max; ++page) {
    s3_request request{"GET", "", {{"uploads", ""}, {"prefix", key_}, {"encoding-type", "url"}}};
    if (!next_key.empty())
      request.query.insert(request.query.end(), {{"key-marker", next_key}, {"upload-id-marker", next_id}});
    request.text_bytes_max = xml_bytes_max;
    const auto answer = c_.send(request);
    if (!answer) return answer.failure();
    if (!answer->is_success()) return c_.failure_of("list the uploads of " + name_, *answer);
    auto listed = parse_uploads(answer->reply.text);
    if (!listed) return listed.failure();
    for (auto& upload : listed->uploads)
      if (upload.key == key_) found.push_back(std::move(upload));
    if (listed->next_key.empty()) return found;
    next_key = listed->next_key;
    next_id = listed->next_id;
  }
  return error{errc::exhausted, "there are too many open uploads of " + name_ + " (" + c_.where() + ")"};
}

result<std::string> part_upload::begin() {
  s3_request request{"POST", key_, {{"uploads", ""}}};
  request.body = "";
  const auto answer = c_.send(request);
  if (!answer) return answer.failure();
  if (!answer->is_success()) return c_.failure_of("begin the upload of " + name_, *answer);
  return parse_upload_id(answer->reply.text);
}

result<part_upload::parts_by_number> part_upload::parts_there() {
  parts_by_number found;
  std::string next;
  for (int page = 0; page < pages_max; ++page) {
    s3_request request{"GET", key_, {{"uploadId", id_}}};
    if (!next.empty()) request.query.emplace_back("part-number-marker", next);
    request.text_bytes_max = xml_bytes_max;
    const auto answer = c_.send(request);
    if (!answer) return answer.failure();
    // Just begun, or just removed: sending a part will tell.
    if (answer->reply.status == 404) return found;
    if (!answer->is_success()) return c_.failure_of("list the parts of " + name_, *answer);
    const auto listed = parse_parts(answer->reply.text);
    if (!listed) return listed.failure();
    for (const auto& part : listed->parts) found[part.number] = part;
    if (listed->next.empty() || listed->parts.empty()) return found;
    next = listed->next;
  }
  return error{errc::exhausted, "the list of the parts of " + name_ + " does not end (" + c_.where() + ")"};
}

result<void> part_upload::send_parts(bool& is_gone) {
  const auto there = parts_there();
  if (!there) return there.failure();
  parts_.clear();
  digests_.clear();
  std::string bytes;
  std::uint32_t number = 0;
  for (std::uint64_t at = 0; at < size_; at += bytes.size()) {
    bytes.resize(std::min(part_bytes_, size_ - at));
    if (auto read = read_exact(file_, at, std::as_writable_bytes(std::span(bytes)), source_); !read)
      return read;
    const auto md5 = md5_of(bytes);
    digests_.push_back(md5);
    ++number;
    const auto known = there->find(number);
    if (known != there->end() && known->second.size == bytes.size() && !md5.hex.empty() &&
        known->second.etag == md5.hex) {
      parts_.push_back(known->second);
      continue;
    }
    if (auto sent = send_part(number, bytes, md5, is_gone); !sent) return sent;
  }
  return {};
}

result<void> part_upload::send_part(std::uint32_t number, std::string_view bytes, const md5_text& md5,
                                    bool& is_gone) {
  s3_request request{"PUT", key_, {{"partNumber", std::to_string(number)}, {"uploadId", id_}}};
  request.body = bytes;
  if (!md5.base64.empty()) request.headers.emplace_back("content-md5", md5.base64);
  request.judge = [&md5](const http_reply& reply) -> std::optional<attempt> {
    const bool fits = compare_etag(reply, md5.hex) != tag_match::different && !reply.header("etag").empty();
    if (fits) return std::nullopt;
    return attempt{fate::broken, 0, {}, {}};
  };
  const auto answer = c_.send(request);
  if (!answer) return answer.failure();
  is_gone = answer->failure.code == "NoSuchUpload";
  if (!answer->is_success())
    return c_.failure_of("put part " + std::to_string(number) + " of " + name_, *answer);
  auto etag = answer->reply.header("etag");
  std::erase(etag, '"');
  parts_.push_back({number, bytes.size(), etag});
  return {};
}

result<void> part_upload::complete(bool& is_gone) {
  const auto text = complete_request(parts_);
  s3_request request{"POST", key_, {{"uploadId", id_}}};
  request.body = text;
  request.stall = complete_stall;
  request.is_once = true;
  if (mode_ == put_mode::if_absent && c_.options().has_conditional_puts)
    request.headers.emplace_back("if-none-match", "*");
  request.judge = [](const http_reply& reply) -> std::optional<attempt> {
    if (parse_completed(reply.text)) return std::nullopt;
    // The status was sent before the parts were put together.
    const auto said = parse_error(reply.text);
    if (said.code.empty()) return attempt{fate::broken, 0, {}, {}};
    return attempt{fate::answered, 500, said.code, {}};
  };
  const auto answer = c_.send(request);
  if (!answer) return answer.failure();
  is_gone = answer->failure.code == "NoSuchUpload";
  if (answer->is_success() || answer->is_ambiguous || is_gone) {
    const auto whole = is_whole();
    if (!whole) return whole.failure();
    if (*whole) return {};
    if (answer->is_success())
      return error{errc::corrupt, name_ + " was put together, but is not what was sent (" + c_.where() + ")"};
  }
  return c_.failure_of("complete the upload of " + name_, *answer);
}

// What lies there is our file: by its size, and by its tag where tags say something.
result<bool> part_upload::is_whole() {
  const auto head = c_.send({"HEAD", key_});
  if (!head) return head.failure();
  if (head->reply.status == 404) return false;
  if (!head->is_success()) return c_.failure_of("look at " + name_, *head);
  return head->reply.header("content-length") == std::to_string(size_) &&
         compare_etag(head->reply, composite_etag(digests_)) != tag_match::different;
}

void part_upload::abort(const std::string& id) {
  const auto answer = c_.send({"DELETE", key_, {{"uploadId", id}}});
  if (answer && (answer->is_success() || answer->reply.status == 404)) return;
  log::warn("parts of an upload of " + name_ + " are left behind: " +
            (answer ? c_.failure_of("remove them", *answer) : answer.failure()).message);
}

void part_upload::abort_others() {
  const auto open = open_uploads();
  if (!open) return log::warn("uploads of " + name_ + " may be left behind: " + open.failure().message);
  for (const auto& upload : *open) abort(upload.id);
}

}  // namespace

result<void> put_in_parts(client& c, const std::string& name, const std::filesystem::path& source,
                          put_mode mode) {
  return part_upload(c, name, source, mode).run();
}

}  // namespace perdura::storage::s3
