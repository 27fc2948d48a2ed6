#include "actors/runtime/tls_connector.hpp"

#include <openssl/err.h>

#include <caf/detail/socket_guard.hpp>
#include <caf/io/middleman.hpp>
#include <caf/io/middleman_actor_impl.hpp>
#include <caf/io/network/default_multiplexer.hpp>
#include <caf/io/network/doorman_impl.hpp>
#include <caf/io/network/interfaces.hpp>
#include <caf/io/network/stream_impl.hpp>
#include <caf/io/scribe.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/base/log.hpp"
#include "actors/tls/session_context.hpp"

namespace perdura::runtime {
namespace {

namespace net = caf::io::network;
using std::chrono::steady_clock;

constexpr unsigned lines_per_second_max = 10;
// What may be written before the handshake is done: CAF's first words.
constexpr std::size_t early_bytes_max = 64U << 10;
// A probe, as ours before each connection, hangs up at once; whoever stays so long meant something else.
constexpr std::chrono::seconds probe_longest{3};

// What all connections of a process share.
class door {
 public:
  explicit door(const tls::identity& self) : context_(tls::make_session_context(self)) {}
  tls::ssl_ptr new_session() const { return tls::ssl_ptr(SSL_new(context_.get())); }

  void note(const std::string& line) {
    const std::lock_guard lock(mutex_);
    const auto now = steady_clock::now();
    if (now - since_ > std::chrono::seconds(1)) {
      since_ = now;
      lines_ = 0;
    }
    if (++lines_ <= lines_per_second_max) log::warn(line);
  }

 private:
  tls::ssl_context_ptr context_;
  std::mutex mutex_;
  steady_clock::time_point since_;
  unsigned lines_ = 0;
};
using door_ptr = std::shared_ptr<door>;

// CAF's stream_impl asks it for bytes; on the multiplexer's thread once it has begun.
class tls_policy {
 public:
  tls_policy(door_ptr d, net::native_socket fd, bool accepts, std::string peer)
      : door_(std::move(d)), session_(door_->new_session()), accepts_(accepts), peer_(std::move(peer)) {
    SSL_set_fd(session_.get(), fd);
    if (accepts_)
      SSL_set_accept_state(session_.get());
    else
      SSL_set_connect_state(session_.get());
  }

  net::rw_state read_some(std::size_t& bytes, net::native_socket, void* into, std::size_t size) {
    bytes = 0;
    if (!get_ready()) return failed_ ? net::rw_state::failure : net::rw_state::success;
    if (size == 0) return net::rw_state::indeterminate;
    return outcome(SSL_read_ex(session_.get(), into, size, &bytes), bytes);
  }

  net::rw_state write_some(std::size_t& bytes, net::native_socket, const void* from, std::size_t size) {
    bytes = 0;
    if (!get_ready()) {
      if (failed_) return net::rw_state::failure;
      // Kept until the peer has answered: to be asked again at once would be to spin.
      const auto* first = static_cast<const char*>(from);
      if (early_.size() + size > early_bytes_max) return net::rw_state::failure;
      early_.insert(early_.end(), first, first + size);
      bytes = size;
      return net::rw_state::success;
    }
    if (size == 0) return net::rw_state::indeterminate;
    return outcome(SSL_write_ex(session_.get(), from, size, &bytes), bytes);
  }

  bool must_read_more(net::native_socket, std::size_t threshold) const {
    const auto pending = static_cast<std::size_t>(SSL_pending(session_.get()));
    return pending > 0 && pending >= threshold;
  }

 private:
  // Whether the handshake is done and nothing that was kept is left. If not, and not failed, the next event
  // goes on.
  bool get_ready() {
    if (failed_) return false;
    ERR_clear_error();  // what OpenSSL asks for before each call: see SSL_get_error
    if (!shaken_) {
      const int done = SSL_do_handshake(session_.get());
      if (done != 1) {
        if (!is_waiting(done)) fail(tls::handshake_failure(session_.get()));
        return false;
      }
      shaken_ = true;
      if (const auto flaw = flaw_of_peer(); !flaw.empty()) {
        fail(flaw);
        return false;
      }
    }
    while (!early_.empty()) {
      std::size_t written = 0;
      const int done = SSL_write_ex(session_.get(), early_.data(), early_.size(), &written);
      if (done != 1) {
        failed_ = !is_waiting(done);
        return false;
      }
      early_.erase(early_.begin(), early_.begin() + static_cast<std::ptrdiff_t>(written));
    }
    return true;
  }

  std::string flaw_of_peer() const {
    const auto who = tls::peer_of(session_.get());
    if (!who) return who.failure().message;
    const bool is_expected =
        accepts_ ? who->as == tls::role::node || who->as == tls::role::worker || who->as == tls::role::gateway
                 : who->as == tls::role::coordinator;
    if (is_expected) return {};
    return "it shows the certificate of " + to_string(*who) +
           (accepts_ ? ", which may not join" : ", not of a coordinator");
  }

  void fail(const std::string& why) {
    failed_ = true;
    const bool is_probe = why.empty() && steady_clock::now() - since_ < probe_longest;
    if (accepts_ && !is_probe)
      door_->note("refused a connection from " + peer_ + ": " +
                  (why.empty() ? "no TLS handshake: it said nothing; a client without TLS?" : why));
    if (!accepts_)
      door_->note("no connection to " + peer_ + ": " + (why.empty() ? "no TLS handshake: it hung up" : why));
  }

  bool is_waiting(int done) const {
    const int code = SSL_get_error(session_.get(), done);
    return code == SSL_ERROR_WANT_READ || code == SSL_ERROR_WANT_WRITE;
  }

  net::rw_state outcome(int done, std::size_t& bytes) {
    if (done == 1) return net::rw_state::success;
    bytes = 0;
    const bool waits = is_waiting(done);
    ERR_clear_error();
    return waits ? net::rw_state::success : net::rw_state::failure;
  }

  door_ptr door_;
  tls::ssl_ptr session_;
  bool accepts_;
  std::string peer_;
  steady_clock::time_point since_ = steady_clock::now();
  std::vector<char> early_;
  bool shaken_ = false;
  bool failed_ = false;
};

std::string name_of_peer(net::native_socket fd) {
  const auto host = net::remote_addr_of_fd(fd);
  const auto port = net::remote_port_of_fd(fd);
  return (host ? *host : "?") + ":" + (port ? std::to_string(*port) : "?");
}

class tls_scribe final : public caf::io::scribe {
 public:
  tls_scribe(net::default_multiplexer& backend, net::native_socket fd, door_ptr d, bool accepts,
             const std::string& peer)
      : scribe(caf::io::connection_handle::from_int(net::int64_from_native_socket(fd))),
        stream_(backend, fd, std::move(d), fd, accepts, peer) {}

  void configure_read(caf::io::receive_policy::config config) override {
    stream_.configure_read(config);
    if (!launched_) launch();
  }
  void ack_writes(bool enable) override { stream_.ack_writes(enable); }
  std::vector<char>& wr_buf() override { return stream_.wr_buf(); }
  std::vector<char>& rd_buf() override { return stream_.rd_buf(); }
  void graceful_shutdown() override {
    stream_.graceful_shutdown();
    detach(&stream_.backend(), false);
  }
  void flush() override { stream_.flush(this); }
  std::string addr() const override {
    const auto host = net::remote_addr_of_fd(stream_.fd());
    return host ? *host : "";
  }
  std::uint16_t port() const override {
    const auto number = net::remote_port_of_fd(stream_.fd());
    return number ? *number : 0;
  }
  void add_to_loop() override { stream_.activate(this); }
  void remove_from_loop() override { stream_.passivate(); }

 private:
  void launch() {
    launched_ = true;
    stream_.start(this);
    stream_.force_empty_write(this);  // whoever connects speaks first in TLS
  }

  bool launched_ = false;
  net::stream_impl<tls_policy> stream_;
};

class tls_doorman final : public net::doorman_impl {
 public:
  tls_doorman(net::default_multiplexer& backend, net::native_socket fd, door_ptr d)
      : doorman_impl(backend, fd), door_(std::move(d)) {}

  bool new_connection() override {
    if (detached()) return false;  // closed by an event handled just before
    const auto fd = acceptor_.accepted_socket();
    caf::detail::socket_guard guard(fd);
    if (!net::nonblocking(fd, true)) return false;
    auto made = caf::make_counted<tls_scribe>(acceptor_.backend(), fd, door_, true, name_of_peer(fd));
    guard.release();
    const auto handle = made->hdl();
    parent()->add_scribe(std::move(made));
    return doorman::new_connection(&acceptor_.backend(), handle);
  }

 private:
  door_ptr door_;
};

class tls_connector final : public caf::io::middleman_actor_impl {
 public:
  tls_connector(caf::actor_config& config, caf::actor broker, door_ptr d)
      : middleman_actor_impl(config, std::move(broker)), door_(std::move(d)) {}
  const char* name() const override { return "tls_connector"; }

 protected:
  caf::expected<caf::io::scribe_ptr> connect(const std::string& host, std::uint16_t port) override {
    const auto fd = net::new_tcp_connection(host, port);
    if (!fd) return fd.error();
    if (const auto set = net::nonblocking(*fd, true); !set) return set.error();
    return caf::io::scribe_ptr(
        caf::make_counted<tls_scribe>(backend(), *fd, door_, false, host + ":" + std::to_string(port)));
  }
  caf::expected<caf::io::doorman_ptr> open(std::uint16_t port, const char* address, bool reuse) override {
    const auto fd = net::new_tcp_acceptor_impl(port, address, reuse);
    if (!fd) return fd.error();
    return caf::io::doorman_ptr(caf::make_counted<tls_doorman>(backend(), *fd, door_));
  }

 private:
  net::default_multiplexer& backend() {
    return static_cast<net::default_multiplexer&>(system().middleman().backend());
  }
  door_ptr door_;
};

}  // namespace

caf::io::middleman_actor make_tls_connector(caf::actor_system& system, const tls::identity& self,
                                            const caf::actor& broker) {
  return system.spawn<tls_connector, caf::detached + caf::hidden>(broker, std::make_shared<door>(self));
}

}  // namespace perdura::runtime
