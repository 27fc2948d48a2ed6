// The children of this process: started, watched, ended. None outlives this process, not even when it is
// killed.
//
// All on one thread, the one that made the object (but for `wake`): the kernel kills a child when the
// *thread* that started it ends, so that must be one that lasts, as main's.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <list>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

using child_number = ordinal<struct child_tag, std::uint64_t>;

struct child_spec {
  std::string name;               // for people
  std::vector<std::string> argv;  // argv[0] is looked up in PATH when it has no slash
  std::vector<std::pair<std::string, std::string>>
      environment;     // added to this process's own, or replacing it
  std::string output;  // file that stdout and stderr are appended to; empty: this process's own
};

struct child_exit {
  child_number child;
  std::string name;
  pid_t pid{};
  int code{};    // of an exit; else 0
  int signal{};  // that killed it; else 0
  std::chrono::milliseconds lived{};
  std::string words;  // "exited with code 3", "was killed by SIGKILL"
};

class child_processes {
 public:
  child_processes();
  // Kills those that are left.
  ~child_processes();
  child_processes(const child_processes&) = delete;
  child_processes& operator=(const child_processes&) = delete;

  // On return the program runs. Its stdin is empty, its process group its own, all descriptors but 0 to 2
  // closed, signals as by default. Errors: no such program, no permission, no such folder for the output, no
  // more processes.
  result<child_number> start(const child_spec& spec);

  // Waits until a child ends, `wake` is called or the time is over, and gives all that have ended. With a
  // child goes all that is left of its process group.
  std::vector<child_exit> wait(std::chrono::milliseconds patience);
  // Ends a `wait` under way, or else the next one. For any thread and for signal handlers.
  void wake();

  // SIGTERM to the group now, and SIGKILL when it has not ended after `grace` (sent from within `wait`). Not
  // found: it has been reported by `wait` already.
  result<void> terminate(child_number child, std::chrono::milliseconds grace);
  result<void> kill(child_number child);

  std::size_t size() const { return children_.size(); }
  // 0 when it has ended.
  pid_t pid_of(child_number child) const;

 private:
  using clock = std::chrono::steady_clock;
  struct child {
    child_number number;
    std::string name;
    pid_t pid{};
    int pidfd = -1;
    clock::time_point started;
    clock::time_point kill_at = clock::time_point::max();
  };

  child* find(child_number number);
  void kill_overdue();
  std::chrono::milliseconds until_next_kill(std::chrono::milliseconds patience) const;
  child_exit reap(child& c);
  void check_thread() const;

  const std::thread::id thread_ = std::this_thread::get_id();
  std::list<child> children_;
  std::uint64_t last_number_ = 0;
  int wake_descriptor_ = -1;
};

}  // namespace perdura::worker
