#include "worker/snapshots.hpp"

#include "actors/base/log.hpp"

namespace perdura::worker {

snapshots::snapshots(const std::string& store, incarnation self,
                     std::function<void(std::vector<chunk_report>)> report)
    : self_(self), report_(std::move(report)), writer_(store, self), thread_([this] { work(); }) {}

snapshots::~snapshots() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void snapshots::add(const storage::checkpoint_key& key, era at, tile_id tile, std::uint32_t of, blob state,
                    bool is_last) {
  {
    const std::lock_guard lock(mutex_);
    if (accepted_ != key && !is_last && (busy_ || !waiting_.empty())) {
      if (skipped_ != key)
        log::warn("the snapshot of " + to_string(key) + " is skipped: the disk is still busy with " +
                  to_string(*accepted_));
      skipped_ = key;
      return;
    }
    accepted_ = key;
    waiting_.push_back({{key, at}, tile, of, std::move(state)});
  }
  changed_.notify_one();
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
  const auto& [key, at] = p.of_attempt;
  if (writing_ != p.of_attempt) {
    writing_ = p.of_attempt;
    written_.clear();
    tiles_written_ = 0;
    failed_ = false;
    writer_.begin(key);
  }
  if (failed_) return;
  auto chunks = writer_.append_tile(p.tile, p.state.bytes());
  auto done = chunks ? result<void>{} : result<void>{chunks.failure()};
  if (chunks) {
    for (const auto& c : *chunks)
      written_.push_back(storage::to_report(c, self_, key.timeline, at, key.step));
    if (++tiles_written_ == p.of) done = writer_.finish();
  }
  if (!done) {
    failed_ = true;
    log::error("the snapshot of " + to_string(key) +
               " failed, the one before it stays: " + done.failure().message);
    return;
  }
  if (tiles_written_ == p.of) report_(std::move(written_));
}

}  // namespace perdura::worker
