#include "actors/transport/session.hpp"

#include <boost/asio/post.hpp>
#include <utility>

namespace perdura::transport {

using boost::system::error_code;

namespace {

// Spans as an asio buffer sequence, without copying them into one.
template <class Buffer, class Span>
struct buffers {
  struct iterator {
    using value_type = Buffer;
    using difference_type = std::ptrdiff_t;
    using pointer = const Buffer*;
    using reference = Buffer;
    using iterator_category = std::bidirectional_iterator_tag;
    const Span* at = nullptr;
    Buffer operator*() const { return Buffer(at->data(), at->size()); }
    iterator& operator++() { return ++at, *this; }
    iterator& operator--() { return --at, *this; }
    iterator operator++(int) { return {at++}; }
    iterator operator--(int) { return {at--}; }
    bool operator==(const iterator&) const = default;
  };
  using value_type = Buffer;
  using const_iterator = iterator;
  const Span* first;
  std::size_t count;
  iterator begin() const { return {first}; }
  iterator end() const { return {first + count}; }
};

using send_buffers = buffers<asio::const_buffer, std::span<const std::byte>>;

}  // namespace

session::session(stream s, incarnation peer, std::uint64_t number, std::vector<std::byte> preamble,
                 std::size_t send_queue_bytes, owner& o)
    : stream_(std::move(s)),
      peer_(peer),
      number_(number),
      owner_(o),
      outbox_(send_queue_bytes),
      writer_(std::move(preamble)) {}

void session::start() {
  read();
  write();
}

void session::stop() {
  over_ = true;
  outbox_.close();
  stream_.close();
}

send_status session::send(message&& m) {
  const auto pushed = outbox_.push(std::move(m));
  if (pushed.wake)
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (!self->over_) self->write();
    });
  return pushed.status;
}

void session::read() {
  const auto targets = reader_.targets();
  const std::array<asio::mutable_buffer, 3> room{asio::mutable_buffer(targets[0].data(), targets[0].size()),
                                                 asio::mutable_buffer(targets[1].data(), targets[1].size()),
                                                 asio::mutable_buffer(targets[2].data(), targets[2].size())};
  stream_.async_read_some(room, [self = shared_from_this()](const error_code& failure, std::size_t bytes) {
    if (!self->over_) self->on_read(failure, bytes);
  });
}

void session::on_read(const error_code& failure, std::size_t bytes) {
  if (failure) return end(write_failure_.empty() ? reason_of(failure) : write_failure_);
  const auto read_well = reader_.advance(bytes, [this](message m) { owner_.arrived(*this, std::move(m)); });
  if (!read_well) return end(read_well.failure().message + "; the connection is given up");
  read();
}

void session::write() {
  if (writing_) return;
  while (writer_.has_space()) {
    auto m = outbox_.pop();
    if (!m) break;
    writer_.push(std::move(*m));
  }
  const auto pending = writer_.pending();
  if (pending.empty()) return;
  writing_ = true;
  stream_.async_write_some(send_buffers{pending.data(), pending.size()},
                           [self = shared_from_this()](const error_code& written, std::size_t bytes) {
                             if (!self->over_) self->on_written(written, bytes);
                           });
}

void session::on_written(const error_code& failure, std::size_t bytes) {
  if (failure) {
    // What the peer sent before it died may still be there: read on until the end, which is near now.
    write_failure_ = reason_of(failure);
    stream_.shut_down();
    return;
  }
  writing_ = false;
  if (const std::size_t left = writer_.advance(bytes); left > 0 && outbox_.release(left))
    owner_.has_room(*this);
  write();
}

void session::end(const std::string& why) {
  stop();
  owner_.broke(*this, why);
}

}  // namespace perdura::transport
