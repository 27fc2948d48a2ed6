// What waits to be sent on one session: filled by any thread, emptied by the links' thread. Bounded in bytes.
#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "actors/transport/message_stream.hpp"

namespace perdura::transport {

class outbox {
 public:
  explicit outbox(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  struct pushed {
    send_status status;
    bool wake = false;  // the links' thread sleeps: tell it
  };

  pushed push(message&& m) {
    const std::size_t size = queued_size(m);
    std::lock_guard lock(mutex_);
    if (closed_) return {send_status::not_connected};
    // An empty outbox takes anything, so that would_block always means that `writable` will come.
    if (bytes_ > 0 && bytes_ + size > bytes_max_) {
      blocked_ = true;
      return {send_status::would_block};
    }
    bytes_ += size;
    waiting_.push_back(std::move(m));
    return {send_status::queued, !std::exchange(drained_, true)};
  }

  // The next message; its size counts until it is released. None: the next push asks to be woken for.
  std::optional<message> pop() {
    std::lock_guard lock(mutex_);
    if (waiting_.empty()) {
      drained_ = false;
      return std::nullopt;
    }
    std::optional<message> m(std::move(waiting_.front()));
    waiting_.pop_front();
    return m;
  }

  // So many bytes have left. True when somebody was refused and there is room again.
  bool release(std::size_t bytes) {
    std::lock_guard lock(mutex_);
    bytes_ -= bytes;
    return bytes_ <= bytes_max_ / 2 && std::exchange(blocked_, false);
  }

  void close() {
    std::deque<message> dropped;
    std::lock_guard lock(mutex_);
    closed_ = true;
    dropped.swap(waiting_);
  }

 private:
  const std::size_t bytes_max_;
  std::mutex mutex_;
  std::deque<message> waiting_;
  std::size_t bytes_ = 0;
  bool drained_ = true;  // the links' thread will look again by itself
  bool blocked_ = false;
  bool closed_ = false;
};

}  // namespace perdura::transport
