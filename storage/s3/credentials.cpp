#include "storage/s3/credentials.hpp"

#include <fcntl.h>
#include <openssl/crypto.h>

#include <cstdlib>

#include "storage/file.hpp"

namespace perdura::storage::s3 {
namespace {

// A header and a line of the canonical request are made of it.
bool is_printable(std::string_view text) {
  for (const char c : text)
    if (c <= ' ' || c > '~') return false;
  return true;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The environment is the caller's to read, once, before threads change it.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

result<credentials> complete(credentials who, const std::string& where, const char* key_name,
                             const char* secret_name) {
  if (who.access_key.empty()) return error{errc::invalid_argument, where + " has no " + key_name};
  if (who.secret_key.empty()) return error{errc::invalid_argument, where + " has no " + secret_name};
  if (!is_printable(who.access_key) || !is_printable(who.secret_key.reveal()) ||
      !is_printable(who.session_token.reveal()))
    return error{errc::invalid_argument, where + " has a key with spaces or control characters in it"};
  return who;
}

void replace_all(std::string& text, const std::string& what) {
  if (what.empty()) return;
  for (auto at = text.find(what); at != text.npos; at = text.find(what, at))
    text.replace(at, what.size(), "***");
}

}  // namespace

secret& secret::operator=(const secret& other) {
  if (this == &other) return *this;
  wipe();
  value_ = other.value_;
  return *this;
}

void secret::wipe() { OPENSSL_cleanse(value_.data(), value_.size()); }

result<credentials> credentials_of_environment() {
  credentials who{variable("AWS_ACCESS_KEY_ID"), secret(variable("AWS_SECRET_ACCESS_KEY")),
                  secret(variable("AWS_SESSION_TOKEN"))};
  if (who.access_key.empty())
    return error{errc::invalid_argument,
                 "there are no credentials for the S3 tier: set credentials_file in its section, or "
                 "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the coordinator's environment"};
  return complete(std::move(who), "the environment", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
}

result<credentials> parse_profile(std::string_view text, const std::string& profile,
                                  const std::string& file) {
  credentials who;
  bool is_ours = false;
  bool was_found = false;
  std::size_t number = 0;
  while (!text.empty()) {
    const auto end = text.find('\n');
    const auto line = trimmed(text.substr(0, end));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    if (line.front() == '[' && line.back() == ']') {
      is_ours = trimmed(line.substr(1, line.size() - 2)) == profile;
      was_found = was_found || is_ours;
      continue;
    }
    const auto equals = line.find('=');
    // Not quoted: it may be a key that has slipped into a line of its own.
    if (equals == line.npos)
      return error{errc::invalid_argument, file + ":" + std::to_string(number) +
                                               ": is no [profile], no `key = value` and no comment"};
    if (!is_ours) continue;
    const auto key = trimmed(line.substr(0, equals));
    const auto value = trimmed(line.substr(equals + 1));
    if (key == "aws_access_key_id") who.access_key = value;
    if (key == "aws_secret_access_key") who.secret_key = secret(value);
    if (key == "aws_session_token") who.session_token = secret(value);
  }
  if (!was_found) return error{errc::not_found, file + " has no section [" + profile + "]"};
  return complete(std::move(who), file + ", section [" + profile + "],", "aws_access_key_id",
                  "aws_secret_access_key");
}

result<credentials> credentials_of_file(const std::filesystem::path& file, const std::string& profile) {
  auto opened = open_file(file, O_RDONLY);
  if (!opened)
    return error{opened.failure().code, "no credentials for the S3 tier: " + opened.failure().message};
  const auto size = size_of(*opened, file);
  if (!size) return size.failure();
  if (*size > credentials_bytes_max)
    return error{errc::exhausted, file.string() + " of " + std::to_string(*size) +
                                      " bytes is no credentials file: it is larger than " +
                                      std::to_string(credentials_bytes_max)};
  std::string text(*size, '\0');
  auto read = read_exact(*opened, 0, std::as_writable_bytes(std::span(text)), file);
  auto who = read ? parse_profile(text, profile, file.string()) : result<credentials>(read.failure());
  OPENSSL_cleanse(text.data(), text.size());
  return who;
}

credentials_source make_source(const std::string& file, const std::string& profile) {
  if (file.empty()) return credentials_of_environment;
  return [file, profile] { return credentials_of_file(file, profile); };
}

std::string without_secrets(std::string text, const credentials& who) {
  replace_all(text, who.secret_key.reveal());
  replace_all(text, who.session_token.reveal());
  return text;
}

}  // namespace perdura::storage::s3
