#include "coordinator/admin/bounded_stream.hpp"

#include <capnp/rpc.capnp.h>
#include <kj/debug.h>

namespace perdura::admin {

kj::Promise<kj::Maybe<capnp::MessageReaderAndFds>> bounded_stream::tryReadMessage(
    kj::ArrayPtr<kj::AutoCloseFd> fds, capnp::ReaderOptions options, kj::ArrayPtr<capnp::word> scratch) {
  return inner_.tryReadMessage(fds, options, scratch)
      .then([this](kj::Maybe<capnp::MessageReaderAndFds> read) {
        KJ_IF_MAYBE (message, read) account(*message->reader);
        return read;
      });
}

// A call is open until its Finish: only then does the RPC system forget the answer.
void bounded_stream::account(capnp::MessageReader& message) {
  last_heard_ = clock_.now();
  switch (message.getRoot<capnp::rpc::Message>().which()) {
    case capnp::rpc::Message::BOOTSTRAP:
    case capnp::rpc::Message::CALL: ++open_calls_; break;
    case capnp::rpc::Message::FINISH: open_calls_ -= open_calls_ > 0 ? 1 : 0; break;
    default: break;
  }
  if (open_calls_ > bounds_.open_calls_max)
    kj::throwFatalException(KJ_EXCEPTION(OVERLOADED, "cut off: more open calls than one client may have",
                                         bounds_.open_calls_max));
  if (hooks_.unsent_bytes() > bounds_.unsent_bytes_max) {
    hooks_.flooded();
    kj::throwFatalException(KJ_EXCEPTION(OVERLOADED, "cut off: more answers unread than a client may leave"));
  }
}

}  // namespace perdura::admin
