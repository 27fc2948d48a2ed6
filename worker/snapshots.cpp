#include "worker/snapshots.hpp"

#include "actors/base/log.hpp"

namespace perdura::worker {

namespace {

storage::writer_options options_of(const checkpoint_config& how) {
  storage::writer_options o;
  o.may_compress = how.codec != "raw";
  o.chain_max = how.deltas;
  return o;
}

}  // namespace

snapshots::snapshots(const std::string& store, incarnation self, const checkpoint_config& how,
                     std::function<void(std::vector<chunk_report>)> report)
    : self_(self),
      bytes_per_s_(how.write_mb_per_s * 1e6),
      report_(std::move(report)),
      writer_(store, self, options_of(how)),
      thread_([this] { work(); }) {}

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

void snapshots::rest(std::uint64_t bytes_before) {
  if (bytes_per_s_ <= 0) return;
  const std::chrono::duration<double> pause(static_cast<double>(writer_.bytes_written() - bytes_before) /
                                            bytes_per_s_);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, pause, [&] { return ending_; });
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
  const auto before = writer_.bytes_written();
  auto chunks = writer_.append_tile(p.tile, p.state);
  rest(before);
  auto done = chunks ? result<void>{} : result<void>{chunks.failure()};
  if (chunks) {
    for (const auto& c : *chunks)
      written_.push_back(
          storage::to_report(c, writer_.bases_of(c.record), self_, key.timeline, at, key.step));
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
