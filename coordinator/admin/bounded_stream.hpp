// What a peer may cost us: a message stream that ends the connection, with the reason, when its peer holds
// more calls open or more answers unread than allowed. Cap'n Proto itself bounds neither.
#pragma once

#include <capnp/serialize-async.h>
#include <kj/time.h>

#include <functional>

namespace perdura::admin {

class bounded_stream final : public capnp::MessageStream {
 public:
  struct limits {
    unsigned open_calls_max;
    std::size_t unsent_bytes_max;
  };
  struct hooks {
    std::function<std::size_t()> unsent_bytes;  // queued for this peer
    std::function<void()> flooded;  // it went beyond unsent_bytes_max: it will read no reason either
  };

  bounded_stream(kj::AsyncIoStream& stream, limits bounds, hooks h, const kj::MonotonicClock& clock)
      : inner_(stream), bounds_(bounds), hooks_(std::move(h)), clock_(clock), last_heard_(clock.now()) {}

  kj::TimePoint last_heard() const { return last_heard_; }
  unsigned open_calls() const { return open_calls_; }

  kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> tryReadMessage(
      kj::ArrayPtr<kj::AutoCloseFd> fds, capnp::ReaderOptions options,
      kj::ArrayPtr<capnp::word> scratch) override;
  kj::Promise<void> writeMessage(kj::ArrayPtr<const int> fds,
                                 kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>> segments) override {
    return inner_.writeMessage(fds, segments);
  }
  kj::Promise<void> writeMessages(
      kj::ArrayPtr<kj::ArrayPtr<const kj::ArrayPtr<const capnp::word>>> messages) override {
    return inner_.writeMessages(messages);
  }
  kj::Maybe<int> getSendBufferSize() override { return inner_.getSendBufferSize(); }
  kj::Promise<void> end() override { return inner_.end(); }

 private:
  void account(capnp::MessageReader& message);

  capnp::AsyncIoMessageStream inner_;
  limits bounds_;
  hooks hooks_;
  const kj::MonotonicClock& clock_;
  kj::TimePoint last_heard_;
  unsigned open_calls_ = 0;
};

}  // namespace perdura::admin
