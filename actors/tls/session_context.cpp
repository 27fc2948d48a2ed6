#include "actors/tls/session_context.hpp"

#include <openssl/err.h>
#include <openssl/sslerr.h>

#include "actors/tls/certificate.hpp"

namespace perdura::tls {

ssl_context_ptr make_session_context(const identity& self) {
  ssl_context_ptr context(SSL_CTX_new(TLS_method()));
  auto* c = context.get();
  const auto ca = read_certificate(self.ca);
  const auto certificate = read_certificate(self.certificate);
  const auto key = read_key(self.key);
  PERDURA_CHECK(c != nullptr && ca && certificate && key, "an identity that was loaded can be read");
  const bool is_set = SSL_CTX_set_min_proto_version(c, TLS1_2_VERSION) == 1 &&
                      X509_STORE_add_cert(SSL_CTX_get_cert_store(c), ca.get()) == 1 &&
                      SSL_CTX_use_certificate(c, certificate.get()) == 1 &&
                      SSL_CTX_use_PrivateKey(c, key.get()) == 1;
  PERDURA_CHECK(is_set, "OpenSSL takes an identity that was loaded");
  SSL_CTX_set_verify(c, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_session_cache_mode(c, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(c, 0);
  SSL_CTX_set_options(c, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(c, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

result<subject> peer_of(SSL* session) {
  const x509_ptr shown(SSL_get1_peer_certificate(session));
  if (!shown) return error{errc::refused, "it shows no certificate"};
  return subject_of(shown.get());
}

std::string handshake_failure(SSL* session) {
  const auto code = ERR_peek_last_error();
  ERR_clear_error();
  if (const auto verdict = SSL_get_verify_result(session); verdict != X509_V_OK)
    return std::string("its certificate is refused: ") + X509_verify_cert_error_string(verdict);
  if (code == 0 || ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING) return {};
  const char* reason = ERR_reason_error_string(code);
  return std::string("no TLS handshake: ") + (reason == nullptr ? "unknown reason" : reason);
}

}  // namespace perdura::tls
