#include "worker/trainer/late_copies.hpp"

#include <algorithm>

namespace perdura::worker {

late_copies::~late_copies() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void late_copies::want(tile_id tile, std::function<void(blob)> done) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({tile, std::move(done)});
    if (!thread_.joinable()) thread_ = std::thread([this] { work(); });
  }
  changed_.notify_all();
}

// With the lock held. Without a tile: whichever is first.
std::optional<late_copies::wanted> late_copies::take(std::optional<tile_id> tile) {
  const auto at = std::find_if(waiting_.begin(), waiting_.end(),
                               [&](const wanted& w) { return !tile || w.tile == *tile; });
  if (at == waiting_.end()) return std::nullopt;
  auto found = std::move(*at);
  waiting_.erase(at);
  return found;
}

void late_copies::before_change(tile_id tile) {
  std::unique_lock lock(mutex_);
  while (auto mine = take(tile)) {
    lock.unlock();
    mine->done(copy_(tile));
    lock.lock();
  }
  changed_.wait(lock, [&] { return copying_ != tile; });
}

void late_copies::before_all_change() {
  std::unique_lock lock(mutex_);
  while (auto mine = take(std::nullopt)) {
    lock.unlock();
    mine->done(copy_(mine->tile));
    lock.lock();
  }
  changed_.wait(lock, [&] { return !copying_; });
}

void late_copies::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    auto mine = take(std::nullopt);
    copying_ = mine->tile;
    lock.unlock();
    auto state = copy_(mine->tile);
    lock.lock();
    copying_.reset();
    lock.unlock();
    changed_.notify_all();
    mine->done(std::move(state));
    lock.lock();
  }
}

}  // namespace perdura::worker
