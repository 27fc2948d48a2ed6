// What main's thread is told to do, by the agent's actor and by signals.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/base/control.hpp"

namespace perdura::worker::node {

using command = decltype(node_order::order);

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

// SIGTERM and SIGINT become commands to stop. Made before any other thread, which then never sees them.
class stop_signals {
 public:
  explicit stop_signals(command_queue& to);
  ~stop_signals();
  stop_signals(const stop_signals&) = delete;
  stop_signals& operator=(const stop_signals&) = delete;

 private:
  std::atomic<bool> ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::worker::node
