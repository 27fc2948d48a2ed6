// A connection that is not a link yet: shakes hands within a deadline, TLS's first where there are
// certificates. Lives on the links' thread.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "actors/transport/handshake.hpp"
#include "actors/transport/stream.hpp"

namespace perdura::transport {

class greeter : public std::enable_shared_from_this<greeter> {
 public:
  // Exactly one of the two is called, once, unless the greeter is taken from or abandoned before; after
  // `greeted`, `failed` may still come while it is parked.
  class owner {
   public:
    virtual ~owner() = default;
    virtual void greeted(const std::shared_ptr<greeter>& g) = 0;
    virtual void failed(const std::shared_ptr<greeter>& g, const std::string& why) = 0;
  };

  greeter(stream s, handshake h, owner& o, std::chrono::milliseconds vanish);

  void dial(const asio::ip::tcp::endpoint& where, std::chrono::milliseconds deadline);
  void answer(std::chrono::milliseconds deadline);
  // The peer is known but not yet named: wait for `take`, so long.
  void park(std::chrono::milliseconds deadline);
  void abandon();
  stream take();

  const incarnation& peer() const { return handshake_.peer(); }
  bool is_dialer() const { return handshake_.is_dialer(); }
  encoded_greeting welcome() const { return encode(handshake_.welcome()); }
  const std::string& remote() const { return remote_; }

 private:
  void arm(std::chrono::milliseconds deadline, const char* what);
  void secure(stream::side as);
  void send(const greeting& g);
  void read();
  void obey(const handshake::step& s);
  void fail(const std::string& why);

  stream stream_;
  asio::steady_timer timer_;
  handshake handshake_;
  owner& owner_;
  std::chrono::milliseconds vanish_;
  std::string remote_;
  std::string refused_;
  encoded_greeting in_{};
  encoded_greeting out_{};
  bool over_ = false;
};

}  // namespace perdura::transport
