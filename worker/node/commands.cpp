#include "worker/node/commands.hpp"

#include <csignal>
#include <cstring>
#include <string>
#include <utility>

namespace perdura::worker::node {

void command_queue::put(command c) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(c));
  }
  wake_();
}

std::vector<command> command_queue::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(waiting_, {});
}

stop_signals::stop_signals(command_queue& to, std::chrono::milliseconds grace) {
  sigset_t watched;
  ::sigemptyset(&watched);
  ::sigaddset(&watched, SIGTERM);
  ::sigaddset(&watched, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  thread_ = std::thread([this, &to, watched, grace] {
    int number = 0;
    bool may_leave = grace.count() > 0;
    while (::sigwait(&watched, &number) == 0 && !ending_) {
      const auto why = "SIG" + std::string(::sigabbrev_np(number));
      if (number == SIGTERM && may_leave)
        to.put(leave{std::chrono::steady_clock::now() + grace, why});
      else
        to.put(stop_node{why});
      may_leave = false;
    }
  });
}

stop_signals::~stop_signals() {
  ending_ = true;
  ::pthread_kill(thread_.native_handle(), SIGTERM);
  thread_.join();
}

}  // namespace perdura::worker::node
