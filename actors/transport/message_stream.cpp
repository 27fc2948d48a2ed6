#include "actors/transport/message_stream.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace perdura::transport {
namespace {

// The parts [begin, end) of a message's content, head then body, as they lie.
template <class Byte>
std::array<std::span<Byte>, 2> content(std::span<Byte> head, std::span<Byte> body, std::size_t begin,
                                       std::size_t end) {
  const auto in_head = [&](std::size_t at) { return std::min(at, head.size()); };
  const auto in_body = [&](std::size_t at) { return std::max(at, head.size()) - head.size(); };
  return {head.subspan(in_head(begin), in_head(end) - in_head(begin)),
          body.subspan(in_body(begin), in_body(end) - in_body(begin))};
}

}  // namespace

// ---- writer
// ------------------------------------------------------------------------------------------------

message_writer::message_writer(std::vector<std::byte> preamble) : preamble_(std::move(preamble)) {
  if (!preamble_.empty()) buffers_.push_back(preamble_);
}

bool message_writer::has_space() const {
  return !cutting_ && pieces_ < pieces_max && batch_bytes_ < batch_bytes_max;
}

void message_writer::push(message m) {
  PERDURA_CHECK(has_space(), "push only into a batch that has space");
  next_ = {};
  next_.head_bytes = static_cast<std::uint32_t>(m.head.size());
  next_.body_bytes = static_cast<std::uint32_t>(m.body.size());
  chain_ = sequence_++;
  messages_.push_back(std::move(m));
  cutting_ = true;
  cut();
}

void message_writer::cut() {
  while (cutting_ && pieces_ < pieces_max && batch_bytes_ < batch_bytes_max) {
    const message& m = messages_.back();
    const std::size_t begin = next_.index * piece_bytes_max;
    const std::size_t end = piece_end(next_);
    const auto parts = content<const std::byte>(m.head, m.body.bytes(), begin, end);
    next_.header_check = header_check(chain_, next_);
    next_.checksum = piece_checksum(chain_, parts[0], parts[1]);
    chain_ = next_.checksum;
    headers_[pieces_] = encode(next_);
    buffers_.push_back(headers_[pieces_]);
    for (auto part : parts)
      if (!part.empty()) buffers_.push_back(part);
    ++pieces_;
    batch_bytes_ += end - begin;
    ++next_.index;
    cutting_ = end < m.head.size() + m.body.size();
  }
}

std::span<const std::span<const std::byte>> message_writer::pending() const {
  return std::span(buffers_).subspan(written_buffers_);
}

std::size_t message_writer::advance(std::size_t bytes) {
  while (bytes > 0) {
    PERDURA_CHECK(written_buffers_ < buffers_.size(), "no more is written than was pending");
    auto& front = buffers_[written_buffers_];
    const std::size_t part = std::min(bytes, front.size());
    front = front.subspan(part);
    bytes -= part;
    if (front.empty()) ++written_buffers_;
  }
  if (written_buffers_ < buffers_.size()) return 0;
  buffers_.clear();
  written_buffers_ = pieces_ = batch_bytes_ = 0;
  std::size_t left = 0;
  while (messages_.size() > (cutting_ ? 1 : 0)) {
    left += queued_size(messages_.front());
    messages_.pop_front();
  }
  cut();
  return left;
}

// ---- reader
// ------------------------------------------------------------------------------------------------

message_reader::message_reader() : staging_(staging_bytes) {}

std::array<std::span<std::byte>, 2> message_reader::rest_of_piece() {
  return content<std::byte>(head_, body_, content_at_, piece_end_);
}

std::array<std::span<std::byte>, 3> message_reader::targets() {
  const auto staging = std::span(staging_).subspan(staged_end_);
  if (!in_piece_) return {std::span<std::byte>{}, {}, staging};
  const auto rest = rest_of_piece();
  return {rest[0], rest[1], staging};
}

result<void> message_reader::advance(std::size_t bytes, const std::function<void(message)>& deliver) {
  if (in_piece_) {
    const std::size_t direct = std::min(bytes, piece_left());
    content_at_ += direct;
    bytes -= direct;
  }
  staged_end_ += bytes;
  PERDURA_CHECK(staged_end_ <= staging_.size(), "no more is read than there was room for");
  while (true) {
    if (in_piece_) {
      take_staged();
      if (piece_left() > 0) break;
      if (auto ended = end_piece(deliver); !ended) return ended;
    } else {
      if (staged_end_ - staged_begin_ < piece_header_bytes) break;
      const auto at = std::span(staging_).subspan(staged_begin_).first<piece_header_bytes>();
      staged_begin_ += piece_header_bytes;
      if (auto begun = begin_piece(decode_piece_header(at)); !begun) return begun;
    }
  }
  // At most a part of a header is left.
  std::memmove(staging_.data(), staging_.data() + staged_begin_, staged_end_ - staged_begin_);
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
  return {};
}

void message_reader::take_staged() {
  for (auto part : rest_of_piece()) {
    const std::size_t n = std::min(part.size(), staged_end_ - staged_begin_);
    if (n == 0) continue;
    std::memcpy(part.data(), staging_.data() + staged_begin_, n);
    staged_begin_ += n;
    content_at_ += n;
  }
}

result<void> message_reader::begin_piece(const piece_header& h) {
  const bool first = piece_end_ == 0;
  if (first) chain_ = sequence_;
  if (h.header_check != header_check(chain_, h))
    return error{errc::corrupt, "the checksum of a piece's header does not fit"};
  if (h.head_bytes > head_bytes_max || h.body_bytes > body_bytes_max)
    return error{errc::corrupt, "a message of " + std::to_string(h.head_bytes) + " + " +
                                    std::to_string(h.body_bytes) + " bytes is above the limit"};
  const bool fits = first ? h.index == 0
                          : h.index == current_.index + 1 && h.head_bytes == current_.head_bytes &&
                                h.body_bytes == current_.body_bytes;
  if (!fits) return error{errc::corrupt, "a piece is out of turn"};
  current_ = h;
  if (first) allocate();
  content_at_ = piece_begin_ = h.index * piece_bytes_max;
  piece_end_ = piece_end(h);
  in_piece_ = true;
  return {};
}

void message_reader::allocate() {
  head_.resize(current_.head_bytes);
  if (current_.body_bytes == 0) return;
  // Not over-aligned new: glibc's aligned allocations do not reuse freed blocks well.
  body_owner_ = std::shared_ptr<std::byte[]>(new std::byte[current_.body_bytes + body_alignment - 1]);
  const auto address = reinterpret_cast<std::uintptr_t>(body_owner_.get());
  const std::size_t skip = (body_alignment - address % body_alignment) % body_alignment;
  body_ = {body_owner_.get() + skip, current_.body_bytes};
}

result<void> message_reader::end_piece(const std::function<void(message)>& deliver) {
  const auto parts = content<const std::byte>(head_, body_, piece_begin_, piece_end_);
  if (piece_checksum(chain_, parts[0], parts[1]) != current_.checksum)
    return error{errc::corrupt, "the checksum of a message does not fit"};
  chain_ = current_.checksum;
  in_piece_ = false;
  if (piece_end_ < head_.size() + body_.size()) return {};
  message m;
  m.head = std::move(head_);
  if (!body_.empty()) m.body = blob(std::move(body_owner_), body_.data(), body_.size());
  head_.clear();
  body_ = {};
  body_owner_.reset();
  piece_begin_ = content_at_ = piece_end_ = 0;
  ++sequence_;
  deliver(std::move(m));
  return {};
}

}  // namespace perdura::transport
