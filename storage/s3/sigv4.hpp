// AWS Signature Version 4, as S3 wants it (paths are neither normalized nor encoded twice). Pure.
// Source: "Authenticating Requests (AWS Signature Version 4)" of the Amazon S3 API reference; compared with
// botocore by tests/parity/sigv4_parity.py. libcurl 7.88's own signs queries without values wrongly.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/s3/credentials.hpp"

namespace perdura::storage::s3 {

using text_pair = std::pair<std::string, std::string>;

inline constexpr std::string_view unsigned_payload = "UNSIGNED-PAYLOAD";

// Nothing in it is encoded yet.
struct signable_request {
  std::string method;
  std::string path;                // "/bucket/a key"
  std::vector<text_pair> query;    // in any order; a key may come twice, a value may be empty
  std::vector<text_pair> headers;  // all of them are signed; host is one, names in any case
  std::string payload_hash;        // hexadecimal SHA-256 of the body, or unsigned_payload
};

struct signing_scope {
  std::string region;
  std::string service = "s3";
  std::chrono::sys_seconds at;
};

// All but letters, digits, '-', '.', '_', '~' as %XX; slashes stay in a path.
std::string uri_encoded(std::string_view text, bool keeps_slashes);
// "a=1&b=", encoded and sorted: what is signed is what has to be sent.
std::string canonical_query(const std::vector<text_pair>& query);

std::string date_time(std::chrono::sys_seconds at);  // "20130524T000000Z"
std::string hex_sha256(std::string_view bytes);

std::string canonical_request(const signable_request& request);
std::string string_to_sign(const std::string& canonical, const signing_scope& scope);
std::string signature_of(const std::string& to_sign, const signing_scope& scope, const secret& key);
// The value of the Authorization header. The request's headers must hold what the service demands: x-amz-date
// as of scope.at, x-amz-content-sha256, and x-amz-security-token where there is a session.
std::string authorization(const signable_request& request, const signing_scope& scope,
                          const credentials& who);

}  // namespace perdura::storage::s3
