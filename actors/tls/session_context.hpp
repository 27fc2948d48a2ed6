// OpenSSL's settings for all connections of one identity: both sides show a certificate of the cluster's CA,
// TLS 1.2 or newer, nothing is resumed.
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "actors/tls/identity.hpp"
#include "actors/tls/openssl.hpp"

namespace perdura::tls {

using ssl_context_ptr = std::unique_ptr<SSL_CTX, freed_by<SSL_CTX_free>>;
using ssl_ptr = std::unique_ptr<SSL, freed_by<SSL_free>>;

// The identity was loaded, so its parts fit.
ssl_context_ptr make_session_context(const identity& self);

// Who is on the other side, after the handshake.
result<subject> peer_of(SSL* session);
// Why a handshake failed, for people; empty: the peer hung up. Takes it from this thread's queue of errors,
// which is empty then.
std::string handshake_failure(SSL* session);

}  // namespace perdura::tls
