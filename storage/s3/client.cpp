#include "storage/s3/client.hpp"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <random>

namespace perdura::storage::s3 {
namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::uint64_t part_bytes_least = std::uint64_t{5} << 20;
constexpr std::uint64_t part_bytes_most = std::uint64_t{1} << 30;

error setting(const std::string& name, const std::string& why) {
  return {errc::invalid_argument, "the S3 tier's " + name + " " + why};
}

struct url_parts {
  std::string scheme, host, port, path, rest;
};

std::string part_of(CURLU* url, CURLUPart which) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, 0) != CURLUE_OK || text == nullptr) return {};
  std::string copy(text);
  curl_free(text);
  return copy;
}

std::optional<url_parts> parse_url(const std::string& text) {
  CURLU* url = curl_url();
  if (url == nullptr) return std::nullopt;
  std::optional<url_parts> parts;
  if (curl_url_set(url, CURLUPART_URL, text.c_str(), 0) == CURLUE_OK)
    parts = url_parts{part_of(url, CURLUPART_SCHEME), part_of(url, CURLUPART_HOST),
                      part_of(url, CURLUPART_PORT), part_of(url, CURLUPART_PATH),
                      part_of(url, CURLUPART_QUERY) + part_of(url, CURLUPART_FRAGMENT) +
                          part_of(url, CURLUPART_USER) + part_of(url, CURLUPART_PASSWORD)};
  curl_url_cleanup(url);
  return parts;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

bool consists_of(std::string_view text, std::string_view more) {
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           more.find(c) != more.npos;
  });
}

bool is_bucket(const std::string& name) {
  return name.size() >= 3 && name.size() <= 255 && consists_of(name, "-._") && name.front() != '.' &&
         name.find("..") == name.npos;
}

std::optional<std::chrono::milliseconds> retry_after_of(const http_reply& reply) {
  const auto text = reply.header("retry-after");
  std::uint32_t seconds{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  // A date is allowed too; it is left alone, our own wait is as good.
  if (text.empty() || failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return std::chrono::milliseconds(std::int64_t{1000} * std::min<std::uint32_t>(seconds, 3600));
}

std::string advice_for(int status, const std::string& code) {
  if (status >= 300 && status < 400) return "set endpoint and region to where the bucket is";
  if (code == "NoSuchBucket") return "create the bucket, or set another one";
  if (code == "SignatureDoesNotMatch") return "check the secret key and the region";
  if (code == "RequestTimeTooSkewed") return "set this machine's clock";
  if (code == "ExpiredToken") return "renew the session's credentials";
  if (code == "EntityTooLarge") return "the service takes no object of this size";
  if (status == 401 || status == 403) return "check the credentials and what they may do in the bucket";
  if (status == 501) return "the service does not know this request: conditional_puts = false may help";
  return {};
}

}  // namespace

result<place> resolve(const s3_options& o) {
  const auto url = parse_url(o.endpoint);
  if (!url || (url->scheme != "http" && url->scheme != "https") || url->host.empty())
    return setting("endpoint", "must be a URL, as https://s3.eu-central-1.amazonaws.com");
  if (!url->rest.empty() || (url->path != "/" && !url->path.empty()))
    return setting("endpoint", "must be scheme, host and port alone, without path, query or user");
  place at{url->scheme, url->host, "/", o.prefix, is_loopback(url->host)};
  if (url->scheme == "http" && !at.is_loopback && !o.allows_plain_http)
    return setting("endpoint",
                   "is http, which anybody on the way can read and change: use https, or allow it with "
                   "plain_http = true");
  if (!is_bucket(o.bucket))
    return setting("bucket", "must be a bucket's name: 3 to 255 letters, digits, '-', '.' and '_'");
  if (o.region.empty() || !consists_of(o.region, "-_")) return setting("region", "must be a region's name");
  if (o.prefix.size() > 256 || !consists_of(o.prefix, "-._/") || o.prefix.starts_with('/') ||
      o.prefix.find("//") != o.prefix.npos)
    return setting("prefix", "must be up to 256 letters, digits, '-', '.', '_' and single '/' inside");
  if (o.part_bytes < part_bytes_least || o.part_bytes > part_bytes_most)
    return setting("part_bytes",
                   "must be " + std::to_string(part_bytes_least) + " to " + std::to_string(part_bytes_most));
  if (!at.key_root.empty() && at.key_root.back() != '/') at.key_root += '/';
  const bool is_usual_port = url->port.empty() || url->port == (url->scheme == "https" ? "443" : "80");
  if (!is_usual_port) at.host += ":" + url->port;
  if (o.is_path_style)
    at.path_root = "/" + o.bucket + "/";
  else
    at.host = o.bucket + "." + at.host;
  return at;
}

result<std::unique_ptr<client>> client::make(s3_options options) {
  auto at = resolve(options);
  if (!at) return at.failure();
  if (!options.who) return setting("credentials", "have no source");
  return std::unique_ptr<client>(new client(std::move(options), *std::move(at)));
}

client::client(s3_options options, place at)
    : options_(std::move(options)),
      at_(std::move(at)),
      http_({options_.limits, options_.ca_file, at_.is_loopback}) {}

std::string client::where() const {
  return "s3://" + options_.bucket + "/" + at_.key_root + " at " + at_.host;
}

http_request client::signed_request(const s3_request& request, const std::string& payload_hash,
                                    const credentials& who) const {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()) + clock_ahead_;
  signable_request signable{request.method, at_.path_root + request.key, request.query, request.headers,
                            payload_hash};
  signable.headers.emplace_back("host", at_.host);
  signable.headers.emplace_back("x-amz-content-sha256", payload_hash);
  signable.headers.emplace_back("x-amz-date", date_time(now));
  if (!who.session_token.empty())
    signable.headers.emplace_back("x-amz-security-token", who.session_token.reveal());
  const auto query = canonical_query(request.query);
  http_request out{request.method, at_.scheme + "://" + at_.host + uri_encoded(signable.path, true) +
                                       (query.empty() ? "" : "?" + query)};
  for (const auto& [name, value] : signable.headers) out.headers.push_back(name + ": " + value);
  out.headers.push_back("authorization: " + authorization(signable, {options_.region, "s3", now}, who));
  out.body = request.body;
  out.into = request.into;
  out.text_bytes_max = request.text_bytes_max;
  out.stall = request.stall;
  out.is_once = request.is_once;
  return out;
}

attempt client::count(const s3_request& request, const http_outcome& outcome, const credentials& who,
                      service_error& said) {
  said = {};
  if (outcome.ended != fate::answered) return {outcome.ended, 0, {}, {}};
  const auto& reply = outcome.reply;
  if (reply.status >= 200 && reply.status < 300) {
    auto flaw = request.judge ? request.judge(reply) : std::nullopt;
    if (flaw) said.code = flaw->code;
    return flaw.value_or(attempt{fate::answered, reply.status, {}, {}});
  }
  said = parse_error(reply.text);
  said.message = without_secrets(std::move(said.message), who);
  if (said.code == "RequestTimeTooSkewed") follow_clock(reply);
  return {fate::answered, reply.status, said.code, retry_after_of(reply)};
}

void client::follow_clock(const http_reply& reply) {
  const auto theirs = curl_getdate(reply.header("date").c_str(), nullptr);
  if (theirs <= 0) return;
  const auto ours = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  clock_ahead_ = std::chrono::seconds(theirs) - ours.time_since_epoch();
}

result<s3_answer> client::send(const s3_request& request) {
  const auto payload_hash = hex_sha256(request.body.value_or(""));
  std::random_device seed;
  retry_schedule schedule(options_.retry, seed(), clock::now());
  for (;;) {
    const auto who = options_.who();
    if (!who) return who.failure();
    const bool was_ambiguous = schedule.is_ambiguous();
    auto outcome = http_.send(signed_request(request, payload_hash, *who));
    service_error said;
    const auto counted = count(request, outcome, *who, said);
    const bool is_done = counted.ended == fate::answered && counted.status >= 200 && counted.status < 300;
    const auto wait = is_done ? std::nullopt : schedule.next(counted, clock::now());
    if (wait && http_.pause(*wait)) continue;
    if (counted.ended == fate::answered) {
      outcome.reply.status = counted.status;
      return s3_answer{std::move(outcome.reply), std::move(said), was_ambiguous};
    }
    const auto kind = counted.ended == fate::hopeless ? errc::refused
                      : counted.ended == fate::lost   ? errc::timeout
                                                      : errc::unavailable;
    const std::string why = outcome.why.empty() ? "the answer is not what was asked for" : outcome.why;
    return error{kind, request.method + " " + (request.key.empty() ? "of the bucket" : request.key) + ": " +
                           why + " (" + std::to_string(schedule.attempts()) + " attempts, " + where() + ")"};
  }
}

error client::failure_of(const std::string& attempted, const s3_answer& answer) const {
  const int status = answer.reply.status;
  const auto kind = status == 404                                     ? errc::not_found
                    : status == 412                                   ? errc::already_exists
                    : status == 416                                   ? errc::corrupt
                    : status == 409 || status == 429 || status >= 500 ? errc::unavailable
                                                                      : errc::refused;
  std::string text = "cannot " + attempted + " (" + where() + "): status " + std::to_string(status);
  if (!answer.failure.code.empty()) text += " " + answer.failure.code;
  if (!answer.failure.message.empty()) text += ": " + answer.failure.message;
  if (const auto region = answer.reply.header("x-amz-bucket-region");
      status >= 300 && status < 400 && consists_of(region, "-") && !region.empty())
    text += "; the bucket is in " + region;
  if (const auto id = answer.reply.header("x-amz-request-id"); !id.empty() && consists_of(id, "-"))
    text += " (request " + id + ")";
  if (const auto advice = advice_for(status, answer.failure.code); !advice.empty()) text += "; " + advice;
  const bool is_missing_bucket = answer.failure.code == "NoSuchBucket";
  return {is_missing_bucket ? errc::refused : status == 501 ? errc::refused : kind, text};
}

}  // namespace perdura::storage::s3
