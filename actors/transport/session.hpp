// One connection that is a link: reads messages, writes what is in its outbox. `send` is for any thread, all
// else for the links' thread.
#pragma once

#include <array>
#include <boost/asio/buffer.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/transport/message_stream.hpp"
#include "actors/transport/outbox.hpp"
#include "actors/transport/stream.hpp"

namespace perdura::transport {

class session : public std::enable_shared_from_this<session> {
 public:
  class owner {
   public:
    virtual ~owner() = default;
    virtual void arrived(session& s, message m) = 0;
    virtual void has_room(session& s) = 0;
    // Last call of this session.
    virtual void broke(session& s, const std::string& why) = 0;
  };

  session(stream s, incarnation peer, std::uint64_t number, std::vector<std::byte> preamble,
          std::size_t send_queue_bytes, owner& o);

  void start();
  // No call to the owner comes after it.
  void stop();
  send_status send(message&& m);

  const incarnation& peer() const { return peer_; }
  std::uint64_t number() const { return number_; }

 private:
  void read();
  void on_read(const boost::system::error_code& failure, std::size_t bytes);
  void write();
  void on_written(const boost::system::error_code& failure, std::size_t bytes);
  void end(const std::string& why);

  stream stream_;
  const incarnation peer_;
  const std::uint64_t number_;
  owner& owner_;
  outbox outbox_;
  message_writer writer_;
  message_reader reader_;
  bool writing_ = false;  // stays set after a failed write
  std::string write_failure_;
  bool over_ = false;
};

}  // namespace perdura::transport
