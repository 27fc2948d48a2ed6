// What stands in a certificate.
#pragma once

#include <string>
#include <vector>

#include "actors/tls/openssl.hpp"
#include "actors/tls/role.hpp"

namespace perdura::tls {

// Error: it carries no role of Perdura's, or more than one.
result<subject> subject_of(X509* certificate);
// DNS names and addresses of the holder's machine.
std::vector<std::string> hosts_of(X509* certificate);

}  // namespace perdura::tls
