// A cluster's own certificate authority: a folder with ca.pem and ca.key, kept off the machines of the
// cluster. What it issues goes into a folder a machine, which is copied there whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "actors/tls/role.hpp"

namespace perdura::tls {

inline constexpr std::chrono::hours authority_lasts{24 * 3650};
// Clocks differ: a certificate counts from a little before it was made.
inline constexpr std::chrono::minutes clocks_differ{5};

struct issue_options {
  subject who;
  std::vector<std::string> hosts;  // DNS names and addresses of its machine, for people and other tools
  std::chrono::seconds lasts = std::chrono::hours(24 * 365);
  std::chrono::seconds begins = -clocks_differ;  // from now
};

// What was written.
struct issued {
  std::filesystem::path certificate;
  std::filesystem::path key;
};

// Files are made 0600, folders 0700; what is there is kept unless `force`.
result<issued> make_authority(const std::filesystem::path& folder, bool force);
// Into `out`: ROLE.pem and ROLE.key, and ca.pem where it is missing. Errors: no CA in `folder`, another
// cluster's ca.pem in `out`, files that are there, a name or host that is none.
result<issued> issue(const std::filesystem::path& folder, const issue_options& options,
                     const std::filesystem::path& out, bool force);

struct certificate_info {
  std::filesystem::path file;
  std::string who;  // "CA", "worker node-1"
  std::vector<std::string> hosts;
  std::int64_t begins_unix_ms = 0;
  std::int64_t ends_unix_ms = 0;
  std::string flaw;  // empty: it can be used now
};

// All certificates in the folder and its machines' folders, by file name.
result<std::vector<certificate_info>> list_certificates(const std::filesystem::path& folder);

}  // namespace perdura::tls
