#include "storage/s3/http.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "actors/base/check.hpp"

namespace perdura::storage::s3 {
namespace {

constexpr int wait_most_ms = 1000;
constexpr long slow_bytes_per_s = 1024;
constexpr std::uint64_t expected_bytes_per_s = std::uint64_t{64} << 10;
constexpr std::size_t header_bytes_max = 4096;
constexpr std::array<std::string_view, 9> kept_headers{"content-length",
                                                       "content-range",
                                                       "date",
                                                       "etag",
                                                       "location",
                                                       "retry-after",
                                                       "x-amz-bucket-region",
                                                       "x-amz-request-id",
                                                       "x-amz-server-side-encryption"};

struct transfer {
  const http_request& request;
  CURL* easy;
  http_reply reply{};
  std::size_t sent = 0;
  std::string flaw{};         // why the body was not taken
  bool is_error_cut = false;  // an error's text was long enough
};

bool is_success(const transfer& t) {
  long status = 0;
  curl_easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300;
}

// Returning less than `count` ends the transfer.
std::size_t take_error(transfer& t, const char* bytes, std::size_t count) {
  const auto room = error_text_bytes_max - t.reply.text.size();
  t.reply.text.append(bytes, std::min(room, count));
  t.is_error_cut = count > room;
  return t.is_error_cut ? 0 : count;
}

std::size_t take_body(char* bytes, std::size_t, std::size_t count, void* to) {
  auto& t = *static_cast<transfer*>(to);
  if (!is_success(t)) return take_error(t, bytes, count);
  if (t.request.into) {
    if (count > t.request.into->size() - t.reply.received) {
      t.flaw = "the answer is longer than the " + std::to_string(t.request.into->size()) + " bytes asked for";
      return 0;
    }
    std::memcpy(t.request.into->data() + t.reply.received, bytes, count);
    t.reply.received += count;
    return count;
  }
  if (count > t.request.text_bytes_max - t.reply.text.size()) {
    t.flaw = "the answer is longer than " + std::to_string(t.request.text_bytes_max) + " bytes";
    return 0;
  }
  t.reply.text.append(bytes, count);
  return count;
}

std::size_t take_header(char* bytes, std::size_t, std::size_t count, void* to) {
  auto& t = *static_cast<transfer*>(to);
  const std::string_view line(bytes, count);
  // An interim answer (100) comes with headers of its own.
  if (line.starts_with("HTTP/")) t.reply.headers.clear();
  const auto colon = line.find(':');
  if (colon == line.npos || count > header_bytes_max) return count;
  std::string name(line.substr(0, colon));
  for (char& c : name)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  if (std::find(kept_headers.begin(), kept_headers.end(), name) == kept_headers.end()) return count;
  auto value = line.substr(colon + 1);
  const auto first = value.find_first_not_of(" \t");
  const auto last = value.find_last_not_of(" \t\r\n");
  if (first != value.npos && last != value.npos && last >= first)
    t.reply.headers[name] = std::string(value.substr(first, last - first + 1));
  return count;
}

std::size_t give_body(char* bytes, std::size_t size, std::size_t count, void* from) {
  auto& t = *static_cast<transfer*>(from);
  const auto rest = t.request.body->substr(t.sent);
  const auto n = std::min(rest.size(), size * count);
  std::memcpy(bytes, rest.data(), n);
  t.sent += n;
  return n;
}

// libcurl sends again what a kept connection lost before any answer.
int rewind_body(void* from, curl_off_t offset, int origin) {
  auto& t = *static_cast<transfer*>(from);
  if (origin != SEEK_SET || offset < 0 || static_cast<std::size_t>(offset) > t.request.body->size())
    return CURL_SEEKFUNC_FAIL;
  t.sent = static_cast<std::size_t>(offset);
  return CURL_SEEKFUNC_OK;
}

struct header_list {
  explicit header_list(const std::vector<std::string>& lines) {
    for (const auto& line : lines) list = curl_slist_append(list, line.c_str());
    list = curl_slist_append(list, "Expect:");  // not every service knows 100-continue
  }
  ~header_list() { curl_slist_free_all(list); }
  header_list(const header_list&) = delete;
  header_list& operator=(const header_list&) = delete;
  curl_slist* list = nullptr;
};

void set_method(const http_request& r, transfer& t) {
  CURL* easy = t.easy;
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r.method.c_str());
  if (r.method == "HEAD") curl_easy_setopt(easy, CURLOPT_NOBODY, 1L);
  if (!r.body) return;
  curl_easy_setopt(easy, CURLOPT_UPLOAD, 1L);
  curl_easy_setopt(easy, CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(r.body->size()));
  curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body);
  curl_easy_setopt(easy, CURLOPT_READDATA, &t);
  curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, rewind_body);
  curl_easy_setopt(easy, CURLOPT_SEEKDATA, &t);
}

void set_limits(const http_request& r, const http_limits& limits, CURL* easy) {
  const std::uint64_t bytes = (r.body ? r.body->size() : 0) + (r.into ? r.into->size() : r.text_bytes_max);
  const auto longest =
      limits.request.count() + static_cast<std::int64_t>(1000 * bytes / expected_bytes_per_s);
  curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(limits.connect.count()));
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(longest));
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_LIMIT, slow_bytes_per_s);
  curl_easy_setopt(easy, CURLOPT_LOW_SPEED_TIME, static_cast<long>(r.stall.value_or(limits.stall).count()));
  curl_easy_setopt(easy, CURLOPT_MAX_SEND_SPEED_LARGE,
                   static_cast<curl_off_t>(limits.upload_bytes_per_s_max));
}

void set_options(const http_request& r, const http_options& o, const header_list& headers, transfer& t) {
  CURL* easy = t.easy;
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, r.url.c_str());
  curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);  // what is signed is what is sent
  curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.list);
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 1L);
  curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 2L);
  curl_easy_setopt(easy, CURLOPT_SSLVERSION, CURL_SSLVERSION_TLSv1_2);
  curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(easy, CURLOPT_FRESH_CONNECT, r.is_once ? 1L : 0L);
  if (!o.ca_file.empty()) curl_easy_setopt(easy, CURLOPT_CAINFO, o.ca_file.c_str());
  if (o.is_direct) curl_easy_setopt(easy, CURLOPT_PROXY, "");
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &t);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &t);
  set_method(r, t);
  set_limits(r, o.limits, easy);
}

fate fate_of(CURLcode code) {
  switch (code) {
    case CURLE_OK: return fate::answered;
    case CURLE_COULDNT_RESOLVE_PROXY:
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
    case CURLE_SSL_CONNECT_ERROR: return fate::unreachable;
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_FAIL_REWIND: return fate::lost;
    case CURLE_PARTIAL_FILE:
    case CURLE_WEIRD_SERVER_REPLY: return fate::broken;
    default: return fate::hopeless;
  }
}

http_outcome outcome_of(CURLcode code, transfer& t) {
  if (code == CURLE_WRITE_ERROR && t.is_error_cut) code = CURLE_OK;
  http_outcome outcome;
  outcome.ended = fate_of(code);
  outcome.why = !t.flaw.empty() ? t.flaw : code == CURLE_OK ? "" : curl_easy_strerror(code);
  long status = 0;
  curl_easy_getinfo(t.easy, CURLINFO_RESPONSE_CODE, &status);
  outcome.reply = std::move(t.reply);
  outcome.reply.status = static_cast<int>(status);
  return outcome;
}

}  // namespace

struct http_session::handles {
  handles() {
    curl_global_init(CURL_GLOBAL_DEFAULT);  // counts its calls
    multi = curl_multi_init();
    easy = curl_easy_init();
    PERDURA_CHECK(multi != nullptr && easy != nullptr, "there is memory for a connection");
  }
  ~handles() {
    curl_easy_cleanup(easy);
    curl_multi_cleanup(multi);
    curl_global_cleanup();
  }
  handles(const handles&) = delete;
  handles& operator=(const handles&) = delete;
  CURLM* multi = nullptr;
  CURL* easy = nullptr;
};

http_session::http_session(http_options options)
    : options_(std::move(options)), handles_(std::make_unique<handles>()) {}
http_session::~http_session() = default;

http_outcome http_session::send(const http_request& request) {
  transfer t{request, handles_->easy};
  const header_list headers(request.headers);
  set_options(request, options_, headers, t);
  curl_multi_add_handle(handles_->multi, handles_->easy);
  int running = 1;
  while (running > 0 && !is_cancelled_) {
    curl_multi_perform(handles_->multi, &running);
    if (running > 0 && !is_cancelled_) curl_multi_poll(handles_->multi, nullptr, 0, wait_most_ms, nullptr);
  }
  auto code = CURLE_ABORTED_BY_CALLBACK;
  int left = 0;
  while (const auto* m = curl_multi_info_read(handles_->multi, &left))
    if (m->msg == CURLMSG_DONE) code = m->data.result;
  auto outcome = outcome_of(code, t);
  curl_multi_remove_handle(handles_->multi, handles_->easy);
  if (is_cancelled_) outcome.why = "cancelled";
  return outcome;
}

bool http_session::pause(std::chrono::milliseconds wait) {
  using clock = std::chrono::steady_clock;
  const auto end = clock::now() + wait;
  while (!is_cancelled_) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - clock::now());
    if (left.count() <= 0) return true;
    curl_multi_poll(handles_->multi, nullptr, 0,
                    static_cast<int>(std::min<std::int64_t>(left.count(), wait_most_ms)), nullptr);
  }
  return false;
}

void http_session::cancel() {
  is_cancelled_ = true;
  curl_multi_wakeup(handles_->multi);
}

}  // namespace perdura::storage::s3
