// The part of S3 that the tier uses, in memory. It checks that what was signed is what was sent.
#pragma once

#include <map>
#include <mutex>
#include <sstream>

#include "storage/s3/s3_store.hpp"
#include "storage/s3/upload.hpp"
#include "tests/unit/web_server.hpp"

namespace perdura::test {

inline std::string url_decoded(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

class fake_s3 {
 public:
  static constexpr const char* access_key = "AKIDFAKE";
  static constexpr const char* secret_key = "very-secret-key-of-the-test";
  static constexpr const char* token = "very-secret-token-of-the-test";

  fake_s3() : server_([this](const web_request& r) { return serve(r); }) {}

  std::uint16_t port() const { return server_.port(); }
  std::string url() const { return server_.url(); }

  // What a service may or may not do.
  std::size_t page = 1000;  // entries of a list
  bool knows_conditions = true;
  bool gives_md5_tags = true;

  std::map<std::string, std::string> objects() const {
    const std::lock_guard lock(mutex_);
    return objects_;
  }
  void put(const std::string& key, std::string bytes) {
    const std::lock_guard lock(mutex_);
    objects_[key] = std::move(bytes);
  }
  std::size_t open_uploads() const {
    const std::lock_guard lock(mutex_);
    return uploads_.size();
  }
  void forget_uploads() {
    const std::lock_guard lock(mutex_);
    uploads_.clear();
  }
  // Damages a part that is there already.
  void spoil_part(std::uint32_t number) {
    const std::lock_guard lock(mutex_);
    for (auto& [id, upload] : uploads_)
      if (upload.parts.contains(number)) upload.parts[number][0] ^= 1;
  }

 private:
  struct open_upload {
    std::string key;
    std::map<std::uint32_t, std::string> parts;
  };
  using pairs = std::vector<std::pair<std::string, std::string>>;

  static web_reply failure(int status, const std::string& code) {
    return {status, "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>" + code +
                        " it is</Message></Error>"};
  }
  static pairs query_of(const web_request& r) {
    pairs all;
    std::istringstream in(r.query());
    for (std::string part; std::getline(in, part, '&');) {
      const auto equals = part.find('=');
      all.emplace_back(url_decoded(part.substr(0, equals)),
                       equals == part.npos ? "" : url_decoded(part.substr(equals + 1)));
    }
    return all;
  }
  static std::optional<std::string> value(const pairs& query, const std::string& key) {
    for (const auto& [k, v] : query)
      if (k == key) return v;
    return std::nullopt;
  }

  bool is_signed(const web_request& r) const {
    using namespace storage::s3;
    const auto given = r.header("authorization");
    const auto names_at = given.find("SignedHeaders=");
    if (names_at == given.npos) return false;
    signable_request s{r.method, url_decoded(r.path()), query_of(r), {}, r.header("x-amz-content-sha256")};
    std::istringstream names(given.substr(names_at + 14, given.find(',', names_at) - names_at - 14));
    for (std::string name; std::getline(names, name, ';');) s.headers.emplace_back(name, r.header(name));
    std::tm tm{};
    if (::strptime(r.header("x-amz-date").c_str(), "%Y%m%dT%H%M%SZ", &tm) == nullptr) return false;
    const signing_scope scope{"us-east-1", "s3",
                              std::chrono::sys_seconds(std::chrono::seconds(::timegm(&tm)))};
    const bool is_whole = hex_sha256(r.body) == s.payload_hash && s.payload_hash.size() == 64;
    return is_whole && authorization(s, scope, {access_key, secret(secret_key), {}}) == given;
  }

  web_reply serve(const web_request& r) {
    const std::lock_guard lock(mutex_);
    if (!is_signed(r)) return failure(403, "SignatureDoesNotMatch");
    const auto query = query_of(r);
    const auto path = url_decoded(r.path());
    if (!path.starts_with("/bucket/")) return failure(404, "NoSuchBucket");
    const std::string key = path.substr(8);
    if (key.empty()) return value(query, "uploads") ? list_uploads(query) : list_objects(query);
    if (const auto id = value(query, "uploadId")) return serve_upload(r, key, *id, query);
    if (r.method == "POST" && value(query, "uploads")) return begin_upload(key);
    if (r.method == "PUT") return put_object(r, key);
    if (r.method == "DELETE") {
      objects_.erase(key);
      return {204, ""};
    }
    return get_object(r, key);
  }

  std::string tag_of(const std::string& bytes) const {
    return gives_md5_tags ? '"' + storage::s3::md5_of(bytes).hex + '"' : "\"opaque\"";
  }
  bool is_refused(const web_request& r, const std::string& key) const {
    return knows_conditions && r.header("if-none-match") == "*" && objects_.contains(key);
  }

  web_reply put_object(const web_request& r, const std::string& key) {
    if (!knows_conditions && !r.header("if-none-match").empty()) return failure(501, "NotImplemented");
    if (is_refused(r, key)) return failure(412, "PreconditionFailed");
    if (r.header("content-md5") != storage::s3::md5_of(r.body).base64) return failure(400, "BadDigest");
    objects_[key] = r.body;
    return {200, "", {{"ETag", tag_of(r.body)}}};
  }
  web_reply get_object(const web_request& r, const std::string& key) {
    const auto found = objects_.find(key);
    if (found == objects_.end()) return failure(404, "NoSuchKey");
    web_reply reply{200, found->second, {{"ETag", tags_.contains(key) ? tags_[key] : tag_of(found->second)}}};
    if (const auto range = r.header("range"); !range.empty()) {
      const auto first = std::stoull(range.substr(6));
      const auto last = std::stoull(range.substr(range.find('-') + 1));
      if (first >= found->second.size()) return failure(416, "InvalidRange");
      reply.status = 206;
      reply.body = found->second.substr(first, last - first + 1);
      reply.headers.emplace_back("Content-Range", "bytes " + std::to_string(first) + "-" +
                                                      std::to_string(first + reply.body.size() - 1) + "/" +
                                                      std::to_string(found->second.size()));
    }
    return reply;
  }
  web_reply list_objects(const pairs& query) {
    const auto prefix = value(query, "prefix").value_or("");
    const auto from = value(query, "continuation-token").value_or("");
    std::string text = "<ListBucketResult><EncodingType>url</EncodingType>";
    std::size_t count = 0;
    for (auto at = objects_.lower_bound(std::max(prefix, from)); at != objects_.end(); ++at) {
      if (!at->first.starts_with(prefix)) break;
      if (count++ == page) {
        text +=
            "<IsTruncated>true</IsTruncated><NextContinuationToken>" + at->first + "</NextContinuationToken>";
        break;
      }
      text += "<Contents><Key>" + storage::s3::uri_encoded(at->first, true) + "</Key><Size>" +
              std::to_string(at->second.size()) + "</Size></Contents>";
    }
    return {200, text + "</ListBucketResult>"};
  }
  web_reply list_uploads(const pairs& query) {
    const auto prefix = value(query, "prefix").value_or("");
    const auto after = value(query, "upload-id-marker").value_or("");
    std::string text = "<ListMultipartUploadsResult>";
    std::string last;
    std::size_t count = 0;
    for (auto at = uploads_.upper_bound(after); at != uploads_.end(); ++at) {
      if (!at->second.key.starts_with(prefix)) continue;
      if (count++ == page) {
        text += "<IsTruncated>true</IsTruncated><NextKeyMarker>" + at->second.key +
                "</NextKeyMarker><NextUploadIdMarker>" + last + "</NextUploadIdMarker>";
        break;
      }
      last = at->first;
      text += "<Upload><Key>" + at->second.key + "</Key><UploadId>" + at->first +
              "</UploadId><Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload>";
    }
    return {200, text + "</ListMultipartUploadsResult>"};
  }
  web_reply begin_upload(const std::string& key) {
    const std::string id = "upload-" + std::to_string(1000 + ++begun_);
    uploads_[id] = {key, {}};
    return {200,
            "<InitiateMultipartUploadResult><UploadId>" + id + "</UploadId></InitiateMultipartUploadResult>"};
  }
  web_reply serve_upload(const web_request& r, const std::string& key, const std::string& id,
                         const pairs& query) {
    const auto found = uploads_.find(id);
    if (found == uploads_.end() || found->second.key != key) return failure(404, "NoSuchUpload");
    auto& parts = found->second.parts;
    if (r.method == "DELETE") {
      uploads_.erase(found);
      return {204, ""};
    }
    if (r.method == "PUT") {
      if (r.header("content-md5") != storage::s3::md5_of(r.body).base64) return failure(400, "BadDigest");
      parts[static_cast<std::uint32_t>(std::stoul(value(query, "partNumber").value()))] = r.body;
      return {200, "", {{"ETag", tag_of(r.body)}}};
    }
    if (r.method == "GET") return list_parts(parts, query);
    if (is_refused(r, key)) return failure(412, "PreconditionFailed");
    return complete(r, key, found);
  }
  web_reply list_parts(const std::map<std::uint32_t, std::string>& parts, const pairs& query) const {
    const auto after =
        static_cast<std::uint32_t>(std::stoul(value(query, "part-number-marker").value_or("0")));
    std::string text = "<ListPartsResult>";
    std::size_t count = 0;
    for (auto at = parts.upper_bound(after); at != parts.end(); ++at) {
      if (count++ == page) {
        text += "<IsTruncated>true</IsTruncated><NextPartNumberMarker>" + std::to_string(at->first - 1) +
                "</NextPartNumberMarker>";
        break;
      }
      text += "<Part><PartNumber>" + std::to_string(at->first) + "</PartNumber><Size>" +
              std::to_string(at->second.size()) + "</Size><ETag>" + tag_of(at->second) + "</ETag></Part>";
    }
    return {200, text + "</ListPartsResult>"};
  }
  web_reply complete(const web_request& r, const std::string& key,
                     std::map<std::string, open_upload>::iterator upload) {
    std::string whole;
    std::vector<storage::s3::md5_text> digests;
    for (const auto& [number, bytes] : upload->second.parts) {
      const auto entry = "<PartNumber>" + std::to_string(number) + "</PartNumber><ETag>&quot;" +
                         tag_of(bytes).substr(1, tag_of(bytes).size() - 2);
      if (r.body.find(entry) == r.body.npos) return failure(400, "InvalidPart");
      whole += bytes;
      digests.push_back(storage::s3::md5_of(bytes));
    }
    objects_[key] = whole;
    tags_[key] = gives_md5_tags ? '"' + storage::s3::composite_etag(digests) + '"' : "\"opaque\"";
    uploads_.erase(upload);
    return {200, "<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>"};
  }

  mutable std::mutex mutex_;
  std::map<std::string, std::string> objects_;
  std::map<std::string, std::string> tags_;  // of objects that came in parts
  std::map<std::string, open_upload> uploads_;
  int begun_ = 0;
  web_server server_;
};

// A store at `url`, as impatient as a test should be.
inline storage::s3::s3_options options_at(const std::string& url) {
  using namespace std::chrono_literals;
  storage::s3::s3_options o;
  o.endpoint = url;
  o.bucket = "bucket";
  o.prefix = "runs/a";
  o.part_bytes = std::uint64_t{5} << 20;
  o.retry.first = 1ms;
  o.retry.longest = 10ms;
  o.limits.stall = 1s;
  o.who = [] {
    return result<storage::s3::credentials>(
        {fake_s3::access_key, storage::s3::secret(fake_s3::secret_key), storage::s3::secret(fake_s3::token)});
  };
  return o;
}

inline std::unique_ptr<storage::s3::s3_store> store_at(storage::s3::s3_options o) {
  auto made = storage::s3::s3_store::make(std::move(o));
  REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.failure().message));
  return *std::move(made);
}

}  // namespace perdura::test
