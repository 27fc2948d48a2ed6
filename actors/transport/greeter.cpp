#include "actors/transport/greeter.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <utility>

namespace perdura::transport {
namespace {
std::string name_of(const asio::ip::tcp::endpoint& where) {
  return where.address().to_string() + ":" + std::to_string(where.port());
}
}  // namespace

using boost::system::error_code;

greeter::greeter(stream s, handshake h, owner& o, std::chrono::milliseconds vanish)
    : stream_(std::move(s)),
      timer_(stream_.get_executor()),
      handshake_(std::move(h)),
      owner_(o),
      vanish_(vanish) {}

void greeter::dial(const asio::ip::tcp::endpoint& where, std::chrono::milliseconds deadline) {
  remote_ = name_of(where);
  arm(deadline, "connection or handshake");
  stream_.lowest().async_connect(where, [self = shared_from_this()](error_code failure) {
    if (self->over_) return;
    if (failure) return self->fail("cannot connect: " + failure.message());
    prepare(self->stream_, self->vanish_);
    self->secure(stream::side::client);
  });
}

void greeter::answer(std::chrono::milliseconds deadline) {
  error_code failure;
  remote_ = name_of(stream_.lowest().remote_endpoint(failure));
  prepare(stream_, vanish_);
  arm(deadline, "handshake");
  secure(stream::side::server);
}

void greeter::secure(stream::side as) {
  stream_.async_secure(as, [self = shared_from_this()](error_code failure) {
    if (self->over_) return;
    if (failure) return self->fail(self->stream_.reason_of_handshake(failure));
    if (auto peer = self->stream_.check_peer(tls::role::worker); !peer)
      return self->fail(peer.failure().message);
    if (self->is_dialer())
      self->send(self->handshake_.hello());
    else
      self->read();
  });
}

void greeter::park(std::chrono::milliseconds deadline) {
  arm(deadline, "order to hold a link to it");
  // Until it is welcome the peer has nothing to say: bytes or an end both end the wait.
  stream_.lowest().async_wait(stream::socket::wait_read, [self = shared_from_this()](error_code failure) {
    if (self->over_ || failure) return;
    self->fail("it went away, or spoke out of turn, while it waited to be named");
  });
}

void greeter::abandon() {
  over_ = true;
  timer_.cancel();
  stream_.close();
}

stream greeter::take() {
  over_ = true;
  timer_.cancel();
  stream_.cancel();
  return std::move(stream_);
}

void greeter::arm(std::chrono::milliseconds deadline, const char* what) {
  timer_.expires_after(deadline);
  timer_.async_wait([self = shared_from_this(), deadline, what](error_code failure) {
    if (self->over_ || failure || self->timer_.expiry() > std::chrono::steady_clock::now()) return;
    self->fail("no " + std::string(what) + " within " + std::to_string(deadline.count()) + " ms");
  });
}

void greeter::send(const greeting& g) {
  out_ = encode(g);
  asio::async_write(stream_, asio::buffer(out_),
                    [self = shared_from_this()](error_code failure, std::size_t) {
                      if (self->over_) return;
                      if (failure) return self->fail(reason_of(failure));
                      if (!self->refused_.empty()) return self->fail(self->refused_);
                      self->read();
                    });
}

void greeter::read() {
  asio::async_read(stream_, asio::buffer(in_), [self = shared_from_this()](error_code failure, std::size_t) {
    if (self->over_) return;
    if (failure) return self->fail(reason_of(failure));
    const auto g = decode_greeting(self->in_);
    if (!g) return self->fail(g.failure().message);
    self->obey(self->handshake_.receive(*g));
  });
}

void greeter::obey(const handshake::step& s) {
  refused_ = s.refused;
  if (s.reply) return send(*s.reply);
  if (!refused_.empty()) return fail(refused_);
  timer_.cancel();
  if (s.done) owner_.greeted(shared_from_this());
}

void greeter::fail(const std::string& why) {
  abandon();
  owner_.failed(shared_from_this(), why);
}

}  // namespace perdura::transport
