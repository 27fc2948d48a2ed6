// The schema's interfaces over an admin_service: decode, call, encode. Used by server.cpp.
#pragma once

#include <kj/async-io.h>

#include <atomic>
#include <functional>

#include "coordinator/admin/admin.capnp.h"
#include "coordinator/admin/server.hpp"

namespace perdura::admin {

// Fired from the server's thread whenever there may be new events; a branch taken before it fires sees it.
class event_signal {
 public:
  event_signal() : event_signal(kj::newPromiseAndFulfiller<void>()) {}
  kj::Promise<void> wait() { return fork_.addBranch(); }
  void fire() {
    auto old = kj::mv(fulfiller_);
    auto next = kj::newPromiseAndFulfiller<void>();
    fulfiller_ = kj::mv(next.fulfiller);
    fork_ = next.promise.fork();
    old->fulfill();
  }

 private:
  explicit event_signal(kj::PromiseFulfillerPair<void> pair)
      : fulfiller_(kj::mv(pair.fulfiller)), fork_(pair.promise.fork()) {}
  kj::Own<kj::PromiseFulfiller<void>> fulfiller_;
  kj::ForkedPromise<void> fork_;
};

// What all connections share; lives as long as the server's event loop.
struct shared_state {
  admin_service& service;
  const server_options& options;
  kj::Timer& timer;
  event_signal events;
};

// `logged_in` is called at the first successful login of the connection.
schema::Gate::Client make_gate(shared_state& shared, std::function<void()> logged_in);

}  // namespace perdura::admin
