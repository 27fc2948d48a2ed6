#include "actors/transport/stream.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>

#include "actors/tls/certificate.hpp"

namespace perdura::transport {
namespace {

void set_option(int descriptor, int level, int name, int value) {
  // An option that the kernel refuses costs promptness, nothing else.
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

}  // namespace

result<std::unique_ptr<asio::ssl::context>> make_tls_context(const tls::identity& self) {
  using asio::ssl::context;
  auto made = std::make_unique<context>(context::tls);
  boost::system::error_code failure;
  const auto step = [&](auto what) {
    if (!failure) what();
  };
  made->set_options(context::default_workarounds | context::no_compression);
  SSL_CTX_set_min_proto_version(made->native_handle(), TLS1_2_VERSION);
  // A link lasts; nothing is resumed.
  SSL_CTX_set_session_cache_mode(made->native_handle(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(made->native_handle(), 0);
  step([&] { made->add_certificate_authority(asio::buffer(self.ca), failure); });
  step([&] { made->use_certificate_chain(asio::buffer(self.certificate), failure); });
  step([&] { made->use_private_key(asio::buffer(self.key), context::pem, failure); });
  step([&] {
    made->set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert, failure);
  });
  if (failure)
    return error{errc::invalid_argument,
                 "cannot use " + self.certificate_file + " for links: " + failure.message()};
  return made;
}

stream::stream(socket s, asio::ssl::context* tls) : layer_(std::in_place_type<socket>, std::move(s)) {
  if (tls != nullptr) layer_ = std::make_unique<secured>(std::move(std::get<socket>(layer_)), *tls);
}

std::string stream::reason_of_handshake(const boost::system::error_code& failure) {
  auto* t = tls();
  const auto verdict = t == nullptr ? X509_V_OK : SSL_get_verify_result(t->native_handle());
  if (verdict != X509_V_OK)
    return std::string("its certificate is refused: ") + X509_verify_cert_error_string(verdict);
  return "no TLS handshake: " + reason_of(failure);
}

result<void> stream::check_peer(tls::role expected) {
  auto* t = tls();
  if (t == nullptr) return {};
  const tls::x509_ptr shown(SSL_get1_peer_certificate(t->native_handle()));
  if (!shown) return error{errc::refused, "it shows no certificate"};
  const auto who = tls::subject_of(shown.get());
  if (!who) return who.failure();
  if (who->as == expected) return {};
  return error{errc::refused,
               "it shows the certificate of " + to_string(*who) + ", not of a " + to_string(expected)};
}

void stream::close() {
  boost::system::error_code ignored;
  lowest().close(ignored);
}

void stream::cancel() {
  boost::system::error_code ignored;
  lowest().cancel(ignored);
}

void stream::shut_down() {
  boost::system::error_code ignored;
  lowest().shutdown(socket::shutdown_both, ignored);
}

result<asio::ip::tcp::endpoint> endpoint_of(const endpoint& where, const std::string& purpose, bool has_tls) {
  boost::system::error_code failure;
  const auto address = asio::ip::make_address(where.host == "localhost" ? "127.0.0.1" : where.host, failure);
  if (failure)
    return error{errc::invalid_argument,
                 "cannot " + purpose + " \"" + where.host + "\": not an IP address; use 127.0.0.1"};
  if (!address.is_loopback() && !has_tls)
    return error{errc::refused, "cannot " + purpose + " " + where.host +
                                    ": links are not encrypted without the cluster's certificates, so only "
                                    "loopback is allowed; set tls_folder"};
  return asio::ip::tcp::endpoint(address, where.port);
}

void prepare(stream& s, std::chrono::milliseconds vanish) {
  const int descriptor = s.lowest().native_handle();
  close_on_exec(descriptor);
  set_option(descriptor, IPPROTO_TCP, TCP_NODELAY, 1);
  if (vanish.count() <= 0) return;
  // The user timeout covers bytes in flight, keep-alives a silent link.
  const int probe_seconds = std::max(1, static_cast<int>(vanish.count() / 4000));
  set_option(descriptor, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, probe_seconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, probe_seconds);
  set_option(descriptor, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(descriptor, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(vanish.count()));
}

void close_on_exec(int descriptor) { ::fcntl(descriptor, F_SETFD, FD_CLOEXEC); }

std::string reason_of(const boost::system::error_code& failure) {
  if (failure == asio::error::eof || failure == asio::ssl::error::stream_truncated)
    return "the peer closed the connection, or its process ended";
  if (failure == asio::error::connection_reset || failure == asio::error::broken_pipe)
    return "the peer's process ended (" + failure.message() + ")";
  if (failure == asio::error::timed_out)
    return "the peer's machine does not answer (" + failure.message() + ")";
  return failure.message();
}

}  // namespace perdura::transport
