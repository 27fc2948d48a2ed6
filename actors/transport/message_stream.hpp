// Messages to bytes and back, without I/O and without copying bodies: the writer hands out where the bytes
// lie, the reader says where the next ones belong.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "actors/transport/wire.hpp"

namespace perdura::transport {

// Gathers pieces, of one message or of several, for one vectored write.
class message_writer {
 public:
  // `preamble` goes out before all messages.
  explicit message_writer(std::vector<std::byte> preamble = {});

  // More messages can be pushed into this batch.
  bool has_space() const;
  void push(message m);
  // What is to be written next; empty when all is. Valid until `advance`.
  std::span<const std::span<const std::byte>> pending() const;
  // So many bytes of it were written. Gives the sizes, in all, of messages that have now left entirely.
  std::size_t advance(std::size_t bytes);

 private:
  static constexpr std::size_t pieces_max =
      20;  // three buffers each: below the 64 that one writev takes here
  static constexpr std::size_t batch_bytes_max = 2 * piece_bytes_max;

  void cut();

  std::vector<std::byte> preamble_;
  std::deque<message> messages_;  // the last one perhaps not wholly cut yet
  bool cutting_ = false;
  piece_header next_;
  std::uint64_t chain_ = 0;
  std::uint64_t sequence_ = 0;
  std::array<encoded_piece_header, pieces_max> headers_;
  std::size_t pieces_ = 0;
  std::size_t batch_bytes_ = 0;
  std::vector<std::span<const std::byte>> buffers_;
  std::size_t written_buffers_ = 0;
};

inline std::size_t queued_size(const message& m) {
  constexpr std::size_t overhead =
      sizeof(message) + piece_header_bytes;  // so that empty messages are bounded too
  return m.head.size() + m.body.size() + overhead;
}

class message_reader {
 public:
  message_reader();

  // Where the next bytes belong, in order: the rest of the piece (head, body), then a small buffer for what
  // follows.
  std::array<std::span<std::byte>, 3> targets();
  // So many bytes were put there. Each message completed by them is delivered once. Corrupt: a size, a place
  // in the order or a checksum does not fit; the stream is of no use any more.
  result<void> advance(std::size_t bytes, const std::function<void(message)>& deliver);

 private:
  static constexpr std::size_t staging_bytes = 16U << 10;

  std::array<std::span<std::byte>, 2> rest_of_piece();
  std::size_t piece_left() const { return piece_end_ - content_at_; }
  void take_staged();
  result<void> begin_piece(const piece_header& h);
  result<void> end_piece(const std::function<void(message)>& deliver);
  void allocate();

  std::vector<std::byte> staging_;
  std::size_t staged_begin_ = 0;
  std::size_t staged_end_ = 0;

  bool in_piece_ = false;
  piece_header current_;
  std::uint64_t sequence_ = 0;
  std::uint64_t chain_ = 0;
  std::size_t piece_begin_ = 0;  // positions in the message's content
  std::size_t content_at_ = 0;
  std::size_t piece_end_ = 0;
  std::vector<std::byte> head_;
  std::shared_ptr<std::byte[]> body_owner_;
  std::span<std::byte> body_;
};

}  // namespace perdura::transport
