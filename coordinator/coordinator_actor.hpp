// The coordinator as an actor. It has a thread of its own, since it waits for the disk before it speaks.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "actors/runtime/harden.hpp"
#include "actors/wire/interfaces.hpp"
#include "coordinator/coordinator_shell.hpp"
#include "coordinator/role_book.hpp"

namespace perdura::coordinator {

// Private to this process: run this on the coordinator's thread.
struct here {
  std::function<void(coordinator_shell&)> what;
};
struct tick {};

}  // namespace perdura::coordinator
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::coordinator::here)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(perdura::coordinator::tick)

namespace perdura::coordinator {

using coordinator_actor = wire::coordinator_actor::extend<wire::cast<here>, wire::cast<tick>>;

// Asks on a thread of its own whether something answers on a port.
class prober {
 public:
  using report = std::function<void(const incarnation&, bool answers)>;
  explicit prober(report done);
  ~prober();
  void ask(const incarnation& who, const endpoint& at);

 private:
  void work();
  const report done_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<incarnation, endpoint>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

struct coordinator_state {
  static inline const char* name = "coordinator";
  std::unique_ptr<coordinator_shell> shell;
  std::unique_ptr<prober> probes;
  role_book roles;
  std::map<incarnation, caf::strong_actor_ptr> workers;
  std::map<incarnation, caf::strong_actor_ptr> nodes;
};

struct coordinator_actor_options {
  shell_options shell;
  tls::identity_ptr identity;  // null: a cluster without certificates
  std::unique_ptr<journal> memory;
  std::unique_ptr<checkpoint_keeper> keeper;
  std::function<void()> events_grew;
  std::function<void()> end;
  std::function<void(const error&)> failed;  // could not begin
};

coordinator_actor::behavior_type coordinator(runtime::hardened<coordinator_actor, coordinator_state>* self,
                                             std::shared_ptr<coordinator_actor_options> options);

}  // namespace perdura::coordinator
