// What a process shows to others, and by whom it lets them be vouched for: a certificate of one role, its
// key, and the cluster's CA. All three are read and checked before anything listens, since CAF would abort on
// the first connection, and others report "handshake failure" to nobody.
//
// A machine's folder: ca.pem, and ROLE.pem with ROLE.key for each role that runs there.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "actors/base/result.hpp"
#include "actors/tls/role.hpp"

namespace perdura::tls {

struct identity {
  subject self;
  std::string ca;  // PEM, all three
  std::string certificate;
  std::string key;
  std::string ca_file;  // and where they lie, for CAF, which reads them itself
  std::string certificate_file;
  std::string key_file;
};
using identity_ptr = std::shared_ptr<const identity>;

// Errors name the file and what to do: missing, no PEM, readable for others, of another CA or role, expired,
// not yet valid, a key of another certificate.
result<identity_ptr> load_identity(const std::filesystem::path& folder, role as);
// Null when `folder` is empty: a cluster without TLS.
result<identity_ptr> load_if_any(const std::string& folder, role as);

// Whom a PEM certificate speaks for. Errors: it is none of ours, `ca` did not issue it, it is out of its
// time.
result<subject> verify(const std::string& certificate, const std::string& ca);

}  // namespace perdura::tls
