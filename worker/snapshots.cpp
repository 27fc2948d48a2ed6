#include "worker/snapshots.hpp"

#include "actors/base/log.hpp"

namespace perdura::worker {

snapshots::snapshots(const std::string& store, incarnation self, std::function<void(std::vector<chunk_report>)> report)
    : self_(self), report_(std::move(report)), writer_(store, self), thread_([this] { work(); }) {}

snapshots::~snapshots() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

bool snapshots::add(const storage::checkpoint_key& key, era at, tile_id tile, std::uint32_t of, blob state) {
  {
    const std::lock_guard lock(mutex_);
    if (accepted_ != key) {
      if (busy_ || !waiting_.empty()) {
        log::warn("snapshot of " + to_string(key) + " is skipped: the disk is still busy with " + to_string(*accepted_));
        return false;
      }
      accepted_ = key;
    }
    waiting_.push_back({key, at, tile, of, std::move(state)});
  }
  changed_.notify_one();
  return true;
}

void snapshots::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    const auto next = std::move(waiting_.front());
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    write(next);
    lock.lock();
    busy_ = false;
  }
}

void snapshots::write(const piece& p) {
  if (writing_ != p.key || tiles_written_ >= p.of) {
    writing_ = p.key;
    written_.clear();
    tiles_written_ = 0;
    failed_ = false;
    writer_.begin(p.key);
  }
  if (failed_) return;
  auto chunks = writer_.append_tile(p.tile, p.state.bytes());
  auto done = chunks ? result<void>{} : result<void>{chunks.failure()};
  if (chunks) {
    for (const auto& c : *chunks) written_.push_back(storage::to_report(c, self_, p.key.timeline, p.at, p.key.step));
    if (++tiles_written_ == p.of) done = writer_.finish();
  }
  if (!done) {
    failed_ = true;
    log::error("snapshot of " + to_string(p.key) + " failed, the one before it stays: " + done.failure().message);
    return;
  }
  if (tiles_written_ == p.of) report_(std::move(written_));
}

}  // namespace perdura::worker
