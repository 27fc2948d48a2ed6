// The blocking lane: connects to a remote actor on a thread of its own, again and again with back-off, so
// that no scheduled actor ever waits for a network. A TCP probe goes first: CAF connects one peer after the
// other, and a host that swallows packets would stall all others.
#pragma once

#include <caf/actor_cast.hpp>
#include <caf/actor_system.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "actors/base/control.hpp"
#include "actors/base/result.hpp"

namespace perdura::runtime {

struct back_off {
  std::chrono::milliseconds first{50};
  std::chrono::milliseconds longest{2000};  // reached by doubling
  std::chrono::milliseconds probe_timeout{1000};
  std::chrono::milliseconds handshake_timeout{5000};
};

// Whether something accepts TCP connections there within the time; the error says what to look at.
result<void> probe_tcp(const endpoint& at, std::chrono::milliseconds timeout);

class connect_lane {
 public:
  // Called on the lane's thread after each attempt; hand the result to an actor with caf::anon_send and
  // return.
  using report = std::function<void(result<caf::strong_actor_ptr>)>;

  // `interface`: what the remote actor must understand, see interface_of.
  connect_lane(caf::actor_system& system, std::set<std::string> interface, endpoint to, back_off pace,
               report done);
  // Waits for an attempt under way: handshake_timeout at most.
  ~connect_lane();
  connect_lane(const connect_lane&) = delete;
  connect_lane& operator=(const connect_lane&) = delete;

  // Start connecting, after construction and after each loss of the connection; no effect while at it. Ends
  // with the first success.
  void connect();

 private:
  void run();
  result<caf::strong_actor_ptr> attempt();

  caf::actor_system& system_;
  const std::set<std::string> interface_;
  const endpoint to_;
  const back_off pace_;
  const report done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool wanted_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

// The messages of a typed interface, as connect_lane takes them.
template <class Interface>
std::set<std::string> interface_of(const caf::actor_system& system) {
  return system.message_types(caf::detail::type_list<Interface>{});
}

}  // namespace perdura::runtime
