// The bytes under a link: a TCP socket, with TLS on it where the cluster has certificates. Without them
// loopback alone is allowed. Greeter and session use nothing of it but async reads, writes and close.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "actors/base/control.hpp"
#include "actors/base/result.hpp"
#include "actors/tls/identity.hpp"

namespace perdura::transport {

namespace asio = boost::asio;

// Both sides show a certificate of the cluster's CA, TLS 1.2 or newer.
result<std::unique_ptr<asio::ssl::context>> make_tls_context(const tls::identity& self);

class stream {
 public:
  using socket = asio::ip::tcp::socket;
  using executor_type = socket::executor_type;
  using side = asio::ssl::stream_base::handshake_type;

  // Without a context: plain. The context outlives the stream.
  stream(socket s, asio::ssl::context* tls);

  socket& lowest() { return std::holds_alternative<socket>(layer_) ? std::get<socket>(layer_) : inner(); }
  executor_type get_executor() { return lowest().get_executor(); }

  // TLS's own handshake; nothing without TLS. Handler: void(error_code).
  template <class Handler>
  void async_secure(side as, Handler&& handler) {
    if (auto* t = tls()) return t->async_handshake(as, std::forward<Handler>(handler));
    asio::post(get_executor(), [h = std::forward<Handler>(handler)]() mutable { h({}); });
  }
  // Why it failed, for people.
  std::string reason_of_handshake(const boost::system::error_code& failure);
  // After it: errc::refused unless the peer's certificate, if there is TLS, is of that role.
  result<void> check_peer(tls::role expected);

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& into, Handler&& handler) {
    if (auto* t = tls()) return t->async_read_some(into, std::forward<Handler>(handler));
    lowest().async_read_some(into, std::forward<Handler>(handler));
  }
  template <class Buffers, class Handler>
  void async_write_some(const Buffers& from, Handler&& handler) {
    if (auto* t = tls()) return t->async_write_some(from, std::forward<Handler>(handler));
    lowest().async_write_some(from, std::forward<Handler>(handler));
  }

  // At once: a link has no use for TLS's farewell, its messages are counted and chained.
  void close();
  void cancel();
  void shut_down();

 private:
  using secured = asio::ssl::stream<socket>;
  secured* tls() {
    auto* t = std::get_if<std::unique_ptr<secured>>(&layer_);
    return t == nullptr ? nullptr : t->get();
  }
  socket& inner() { return std::get<std::unique_ptr<secured>>(layer_)->next_layer(); }

  std::variant<socket, std::unique_ptr<secured>> layer_;
};

// The address to bind or dial. Refused off loopback without TLS; invalid when the host is no IP address (or
// "localhost").
result<asio::ip::tcp::endpoint> endpoint_of(const endpoint& where, const std::string& purpose, bool has_tls);

// No delay, closed on exec, and broken when the machine on the other side is silent for `vanish` (0: never).
// That includes a peer that lives but reads nothing for so long while bytes wait for it.
void prepare(stream& s, std::chrono::milliseconds vanish);

void close_on_exec(int descriptor);

// Why a read or a write failed, for people.
std::string reason_of(const boost::system::error_code& failure);

}  // namespace perdura::transport
