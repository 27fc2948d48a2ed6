// Who we are to an S3 service. Secrets come from a file or the environment, are wiped when they go, and have
// no way into a text: nothing here prints one, and errors about a credentials file quote none of its lines.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "actors/base/result.hpp"

namespace perdura::storage::s3 {

// Has no operator<<, no to_string and no implicit conversion on purpose.
class secret {
 public:
  secret() = default;
  explicit secret(std::string_view value) : value_(value) {}
  secret(const secret&) = default;
  secret& operator=(const secret& other);
  ~secret() { wipe(); }

  bool empty() const { return value_.empty(); }
  // For signing, and for the header that carries a session's token.
  const std::string& reveal() const { return value_; }

 private:
  void wipe();
  std::string value_;
};

struct credentials {
  std::string access_key;
  secret secret_key;
  secret session_token;  // empty: none
};

// Asked for each request: a file's keys may be changed while we run.
using credentials_source = std::function<result<credentials>()>;

// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if there is one, AWS_SESSION_TOKEN.
result<credentials> credentials_of_environment();

inline constexpr std::size_t credentials_bytes_max = std::size_t{64} << 10;

// The usual format: a section for each profile, in it aws_access_key_id, aws_secret_access_key and
// aws_session_token; lines that begin with '#' or ';' are comments, other keys are left alone. Errors name
// `file`, the line and what is missing.
result<credentials> parse_profile(std::string_view text, const std::string& profile, const std::string& file);
result<credentials> credentials_of_file(const std::filesystem::path& file, const std::string& profile);

// The file where one is named, else the environment.
credentials_source make_source(const std::string& file, const std::string& profile);

// `text` with every secret of `who` in it replaced: for what a server says.
std::string without_secrets(std::string text, const credentials& who);

}  // namespace perdura::storage::s3
