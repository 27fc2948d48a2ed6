// What main's thread is told to do, by the agent's actor and by signals.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "actors/base/control.hpp"

namespace perdura::worker::node {

// The machine goes: the workers hand over what they hold, until the coordinator says stop or time is up.
struct leave {
  std::chrono::steady_clock::time_point deadline;
  std::string why;
};

using command = std::variant<kill_worker, start_workers, stop_node, leave>;

// Any thread puts in, main takes out.
class command_queue {
 public:
  // `wake` ends main's wait; called after each command.
  explicit command_queue(std::function<void()> wake) : wake_(std::move(wake)) {}
  void put(command c);
  std::vector<command> take();

 private:
  const std::function<void()> wake_;
  std::mutex mutex_;
  std::vector<command> waiting_;
};

// The first SIGTERM becomes a command to leave within `grace`, any further one and SIGINT one to stop.
// Without grace all mean stop. Made before any other thread, which then never sees them.
class stop_signals {
 public:
  stop_signals(command_queue& to, std::chrono::milliseconds grace);
  ~stop_signals();
  stop_signals(const stop_signals&) = delete;
  stop_signals& operator=(const stop_signals&) = delete;

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::worker::node
