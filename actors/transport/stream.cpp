#include "actors/transport/stream.hpp"

#include <fcntl.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

namespace perdura::transport {
namespace {

void set_option(int descriptor, int level, int name, int value) {
  // An option that the kernel refuses costs promptness, nothing else.
  ::setsockopt(descriptor, level, name, &value, sizeof value);
}

}  // namespace

result<asio::ip::tcp::endpoint> loopback_endpoint(const endpoint& where, const std::string& purpose) {
  boost::system::error_code failure;
  const auto address = asio::ip::make_address(where.host == "localhost" ? "127.0.0.1" : where.host, failure);
  if (failure)
    return error{errc::invalid_argument,
                 "cannot " + purpose + " \"" + where.host + "\": not an IP address; use 127.0.0.1"};
  if (!address.is_loopback())
    return error{errc::refused,
                 "cannot " + purpose + " " + where.host +
                     ": links are not encrypted until the cluster has its certificates, so only "
                     "loopback is allowed; use 127.0.0.1"};
  return asio::ip::tcp::endpoint(address, where.port);
}

void prepare(stream& s, std::chrono::milliseconds vanish) {
  const int descriptor = s.native_handle();
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
  if (failure == asio::error::eof) return "the peer closed the connection, or its process ended";
  if (failure == asio::error::connection_reset || failure == asio::error::broken_pipe)
    return "the peer's process ended (" + failure.message() + ")";
  if (failure == asio::error::timed_out)
    return "the peer's machine does not answer (" + failure.message() + ")";
  return failure.message();
}

}  // namespace perdura::transport
