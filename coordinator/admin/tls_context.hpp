// TLS for the admin RPC, by KJ: both sides show a certificate of the cluster's CA. KJ shows
// nothing of it but the common name, by which the server tells an admin (tls::uri_of), and compares nothing
// but the host name, by which the client tells a coordinator (tls::dns_name_of).
#pragma once

#include <kj/compat/tls.h>

#include <string>

#include "actors/base/result.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::admin {

result<kj::Own<kj::TlsContext>> make_tls_context(const tls::identity& self);

}  // namespace perdura::admin
