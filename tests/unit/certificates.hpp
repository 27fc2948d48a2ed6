// A cluster's CA in a folder of its own, and certificates of it, good ones and bad ones.
#pragma once

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "actors/tls/authority.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::test {

inline std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class authority {
 public:
  authority() {
    std::string name = (std::filesystem::temp_directory_path() / "perdura-pki-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder_ = name;
    const auto made = tls::make_authority(folder_, false);
    REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.failure().message));
  }
  authority(const authority&) = delete;
  authority& operator=(const authority&) = delete;
  ~authority() {
    std::error_code failed;
    std::filesystem::remove_all(folder_, failed);
  }

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path machine(const std::string& name) const { return folder_ / name; }

  tls::issued issue(const tls::issue_options& options, bool force = false) const {
    const auto made = tls::issue(folder_, options, machine(options.who.name), force);
    REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.failure().message));
    return *made;
  }

  // As load_identity gives it, without its checks.
  tls::identity_ptr identity(tls::issue_options options) const {
    const auto files = issue(options, true);
    auto id = std::make_shared<tls::identity>();
    id->self = options.who;
    id->ca_file = (files.certificate.parent_path() / "ca.pem").string();
    id->certificate_file = files.certificate.string();
    id->key_file = files.key.string();
    id->ca = content_of(id->ca_file);
    id->certificate = content_of(id->certificate_file);
    id->key = content_of(id->key_file);
    return id;
  }
  tls::identity_ptr identity(tls::role as, const std::string& name = "test") const {
    return identity(tls::issue_options{.who = {as, name}, .hosts = {}});
  }
  tls::identity_ptr expired(tls::role as) const {
    return identity({.who = {as, "expired"},
                     .hosts = {},
                     .lasts = std::chrono::hours(1),
                     .begins = -std::chrono::hours(2)});
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace perdura::test
