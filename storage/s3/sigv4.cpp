#include "storage/s3/sigv4.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>
#include <cstdio>

#include "actors/base/check.hpp"
#include "storage/hash.hpp"

namespace perdura::storage::s3 {
namespace {

constexpr std::string_view algorithm = "AWS4-HMAC-SHA256";
using digest = std::array<unsigned char, 32>;

digest hmac(std::string_view key, std::string_view text) {
  digest out{};
  unsigned int size = out.size();
  const auto* done =
      HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(text.data()), text.size(), out.data(), &size);
  PERDURA_CHECK(done != nullptr && size == out.size(), "OpenSSL computes HMAC-SHA-256");
  return out;
}

std::string_view text_of(const digest& d) { return {reinterpret_cast<const char*>(d.data()), d.size()}; }

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

// Ends are trimmed, runs of white space become one space.
std::string collapsed(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool is_space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (!is_space) out += c;
    if (is_space && !out.empty() && out.back() != ' ') out += ' ';
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

// By name; values of a name that comes twice are joined, in the order in which they came.
std::vector<text_pair> canonical_headers(const std::vector<text_pair>& headers) {
  std::vector<text_pair> sorted;
  for (const auto& [name, value] : headers) sorted.emplace_back(lower(name), collapsed(value));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const text_pair& a, const text_pair& b) { return a.first < b.first; });
  std::vector<text_pair> joined;
  for (auto& [name, value] : sorted) {
    if (!joined.empty() && joined.back().first == name)
      joined.back().second += "," + value;
    else
      joined.emplace_back(std::move(name), std::move(value));
  }
  return joined;
}

std::string signed_headers(const std::vector<text_pair>& canonical) {
  std::string names;
  for (const auto& [name, value] : canonical) names += (names.empty() ? "" : ";") + name;
  return names;
}

std::string scope_text(const signing_scope& scope) {
  return date_time(scope.at).substr(0, 8) + "/" + scope.region + "/" + scope.service + "/aws4_request";
}

}  // namespace

std::string uri_encoded(std::string_view text, bool keeps_slashes) {
  static constexpr char digits[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                          c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keeps_slashes);
    if (is_plain) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

std::string canonical_query(const std::vector<text_pair>& query) {
  std::vector<text_pair> encoded;
  for (const auto& [key, value] : query)
    encoded.emplace_back(uri_encoded(key, false), uri_encoded(value, false));
  std::sort(encoded.begin(), encoded.end());
  std::string out;
  for (const auto& [key, value] : encoded) out += (out.empty() ? "" : "&") + key + "=" + value;
  return out;
}

std::string date_time(std::chrono::sys_seconds at) {
  const auto day = std::chrono::floor<std::chrono::days>(at);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(at - day);
  char text[40];
  std::snprintf(text, sizeof text, "%04d%02u%02uT%02d%02d%02dZ", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                static_cast<int>(time.hours().count()), static_cast<int>(time.minutes().count()),
                static_cast<int>(time.seconds().count()));
  return text;
}

std::string hex_sha256(std::string_view bytes) { return to_string(hash_of(bytes)); }

std::string canonical_request(const signable_request& request) {
  const auto headers = canonical_headers(request.headers);
  std::string text =
      request.method + "\n" + uri_encoded(request.path, true) + "\n" + canonical_query(request.query) + "\n";
  for (const auto& [name, value] : headers) text.append(name).append(":").append(value).append("\n");
  return text + "\n" + signed_headers(headers) + "\n" + request.payload_hash;
}

std::string string_to_sign(const std::string& canonical, const signing_scope& scope) {
  return std::string(algorithm) + "\n" + date_time(scope.at) + "\n" + scope_text(scope) + "\n" +
         hex_sha256(canonical);
}

std::string signature_of(const std::string& to_sign, const signing_scope& scope, const secret& key) {
  const secret first("AWS4" + key.reveal());
  auto derived = hmac(first.reveal(), date_time(scope.at).substr(0, 8));
  derived = hmac(text_of(derived), scope.region);
  derived = hmac(text_of(derived), scope.service);
  derived = hmac(text_of(derived), "aws4_request");
  return to_string(content_hash{hmac(text_of(derived), to_sign)});
}

std::string authorization(const signable_request& request, const signing_scope& scope,
                          const credentials& who) {
  const auto to_sign = string_to_sign(canonical_request(request), scope);
  return std::string(algorithm) + " Credential=" + who.access_key + "/" + scope_text(scope) +
         ",SignedHeaders=" + signed_headers(canonical_headers(request.headers)) +
         ",Signature=" + signature_of(to_sign, scope, who.secret_key);
}

}  // namespace perdura::storage::s3
