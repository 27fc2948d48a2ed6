#include "worker/node/http_client.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <string_view>

namespace perdura::worker::node {
namespace {

constexpr int wait_most_ms = 1000;

std::size_t take_body(char* bytes, std::size_t, std::size_t count, void* to) {
  auto& body = static_cast<http_reply*>(to)->body;
  if (body.size() + count > http_body_bytes_max) return 0;  // which ends the transfer
  body.append(bytes, count);
  return count;
}

std::size_t take_header(char* bytes, std::size_t, std::size_t count, void* to) {
  const std::string_view line(bytes, count);
  constexpr std::string_view name = "etag:";
  const bool is_etag =
      line.size() > name.size() && std::equal(name.begin(), name.end(), line.begin(), [](char a, char b) {
        return a == std::tolower(static_cast<unsigned char>(b));
      });
  if (is_etag) {
    auto value = line.substr(name.size());
    const auto first = value.find_first_not_of(" \t");
    const auto last = value.find_last_not_of(" \t\r\n");
    if (first != std::string_view::npos && last >= first)
      static_cast<http_reply*>(to)->etag = value.substr(first, last - first + 1);
  }
  return count;
}

struct header_list {
  explicit header_list(const std::vector<std::string>& lines) {
    for (const auto& line : lines) list = curl_slist_append(list, line.c_str());
  }
  ~header_list() { curl_slist_free_all(list); }
  header_list(const header_list&) = delete;
  header_list& operator=(const header_list&) = delete;
  curl_slist* list = nullptr;
};

error failure_of(const http_request& r, CURLcode code) {
  const auto kind = code == CURLE_OPERATION_TIMEDOUT ? errc::timeout
                    : code == CURLE_WRITE_ERROR      ? errc::exhausted
                                                     : errc::unavailable;
  const std::string why = code == CURLE_WRITE_ERROR
                              ? "the reply is longer than " + std::to_string(http_body_bytes_max) + " bytes"
                              : curl_easy_strerror(code);
  return {kind, r.method + " " + r.url + ": " + why};
}

void set_options(CURL* easy, const http_request& r, const header_list& headers, http_reply& reply) {
  curl_easy_reset(easy);
  curl_easy_setopt(easy, CURLOPT_URL, r.url.c_str());
  curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, r.method.c_str());
  curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers.list);
  curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, static_cast<long>(r.timeout.count()));
  curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(easy, CURLOPT_NOPROXY, "*");  // a metadata service is never behind one
  curl_easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(easy, CURLOPT_WRITEDATA, &reply);
  curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(easy, CURLOPT_HEADERDATA, &reply);
}

}  // namespace

struct http_client::handles {
  handles() {
    curl_global_init(CURL_GLOBAL_DEFAULT);  // counts its calls
    multi = curl_multi_init();
    easy = curl_easy_init();
    PERDURA_CHECK(multi != nullptr && easy != nullptr, "a process has memory left for its agent");
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

http_client::http_client() : handles_(std::make_unique<handles>()) {}
http_client::~http_client() = default;

result<http_reply> http_client::send(const http_request& r) {
  http_reply reply;
  const header_list headers(r.headers);
  set_options(handles_->easy, r, headers, reply);
  curl_multi_add_handle(handles_->multi, handles_->easy);
  int running = 1;
  while (running > 0 && !is_cancelled_) {
    curl_multi_perform(handles_->multi, &running);
    if (running > 0 && !is_cancelled_) curl_multi_poll(handles_->multi, nullptr, 0, wait_most_ms, nullptr);
  }
  auto outcome = CURLE_ABORTED_BY_CALLBACK;
  int left = 0;
  while (const auto* m = curl_multi_info_read(handles_->multi, &left))
    if (m->msg == CURLMSG_DONE) outcome = m->data.result;
  curl_easy_getinfo(handles_->easy, CURLINFO_RESPONSE_CODE, &reply.status);
  curl_multi_remove_handle(handles_->multi, handles_->easy);
  if (outcome != CURLE_OK) return failure_of(r, outcome);
  return reply;
}

void http_client::cancel() {
  is_cancelled_ = true;
  curl_multi_wakeup(handles_->multi);
}

}  // namespace perdura::worker::node
