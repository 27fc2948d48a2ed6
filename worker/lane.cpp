#include "worker/lane.hpp"

#include <algorithm>

namespace perdura::worker {

lane::lane() : thread_([this] { work(); }) {}

lane::~lane() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void lane::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    state_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void lane::compute(step_number step, block slots, std::function<void(const std::atomic<bool>&)> task) {
  {
    const std::lock_guard lock(mutex_);
    compute_.push_back({step, slots, std::move(task)});
  }
  changed_.notify_one();
}

void lane::keep_only(step_number step, const std::vector<block>& wanted) {
  const auto is_wanted = [&](step_number s, const block& b) {
    return s == step && std::find(wanted.begin(), wanted.end(), b) != wanted.end();
  };
  const std::lock_guard lock(mutex_);
  std::erase_if(compute_, [&](const job& j) { return !is_wanted(j.step, j.slots); });
  if (running_.size > 0 && !is_wanted(running_step_, running_)) {
    stop_ = true;
    changed_.notify_one();
  }
}

void lane::run_state(std::unique_lock<std::mutex>& lock) {
  auto task = std::move(state_.front());
  state_.pop_front();
  lock.unlock();
  task();
  task = nullptr;
  lock.lock();
}

void lane::run_waiting() {
  std::unique_lock lock(mutex_);
  while (!state_.empty() && !ending_) run_state(lock);
}

void lane::wait_for_state() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ending_ || stop_ || !state_.empty(); });
  while (!state_.empty() && !ending_) run_state(lock);
}

void lane::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !state_.empty() || !compute_.empty(); });
    if (ending_) return;
    if (!state_.empty()) {
      run_state(lock);
      continue;
    }
    auto next = std::move(compute_.front());
    compute_.pop_front();
    running_step_ = next.step;
    running_ = next.slots;
    stop_ = false;
    lock.unlock();
    next.task(stop_);
    next.task = nullptr;
    lock.lock();
    running_ = {};
  }
}

}  // namespace perdura::worker
