#include "coordinator/checkpoint_keeper.hpp"

#include "actors/base/log.hpp"

namespace perdura::coordinator {

std::optional<std::vector<storage::tile_chunk>> chunk_collector::add(timeline_number timeline,
                                                                     step_number step,
                                                                     const storage::tile_chunk& chunk) {
  auto& places = open_[{timeline, step}];
  places.insert_or_assign({chunk.tile, chunk.kind}, chunk);
  if (places.size() < tiles_ * storage::all_kinds.size()) return std::nullopt;
  std::vector<storage::tile_chunk> all;
  for (auto& [where, c] : places) all.push_back(std::move(c));
  open_.erase({timeline, step});
  return all;
}

std::vector<std::pair<timeline_number, step_number>> chunk_collector::drop_until(timeline_number timeline,
                                                                                 step_number step) {
  std::vector<std::pair<timeline_number, step_number>> dropped;
  while (!open_.empty() && open_.begin()->first <= std::pair{timeline, step}) {
    dropped.push_back(open_.begin()->first);
    open_.erase(open_.begin());
  }
  return dropped;
}

result<std::unique_ptr<checkpoint_keeper>> checkpoint_keeper::open(const std::filesystem::path& store,
                                                                   const std::filesystem::path& index) {
  auto opened = storage::checkpoint_index::open(store, index);
  if (!opened) return opened.failure();
  return std::unique_ptr<checkpoint_keeper>(new checkpoint_keeper(std::move(*opened)));
}

checkpoint_keeper::checkpoint_keeper(std::unique_ptr<storage::checkpoint_index> index)
    : index_(std::move(index)) {
  refresh();
  thread_ = std::thread([this] { work(); });
}

checkpoint_keeper::~checkpoint_keeper() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void checkpoint_keeper::commit(storage::manifest m, std::uint32_t keep, std::vector<incarnation> live,
                               done then) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(m), keep, std::move(live), std::move(then)});
  }
  changed_.notify_one();
}

void checkpoint_keeper::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    result<void> committed;
    {
      const std::lock_guard index_lock(index_mutex_);
      committed = index_->commit(next.contents);
      if (committed && next.keep > 0)
        if (const auto freed = index_->drop_older_than(next.contents.job, next.keep, next.live); !freed)
          log::warn("old checkpoints stay: " + freed.failure().message);
    }
    refresh();
    next.then(next.contents, std::move(committed));
    lock.lock();
  }
}

void checkpoint_keeper::refresh() {
  std::vector<admin::checkpoint_info> all;
  {
    const std::lock_guard lock(index_mutex_);
    auto listed = index_->list("");
    if (!listed) return log::warn(listed.failure().message);
    for (const auto& c : *listed) {
      admin::checkpoint_info info;
      info.job = c.key.job;
      info.step = c.key.step;
      info.timeline = c.key.timeline;
      info.bytes = c.bytes;
      info.created_ms = static_cast<std::int64_t>(c.created_unix_ms);
      info.state = admin::checkpoint_state::committed;
      all.push_back(std::move(info));
    }
  }
  const std::lock_guard lock(mutex_);
  known_ = std::move(all);
}

std::vector<admin::checkpoint_info> checkpoint_keeper::list(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  if (job.empty()) return known_;
  std::vector<admin::checkpoint_info> of_job;
  for (const auto& c : known_)
    if (c.job == job) of_job.push_back(c);
  return of_job;
}

result<std::optional<storage::manifest>> checkpoint_keeper::newest(const std::string& job) {
  const std::lock_guard lock(index_mutex_);
  return index_->latest_valid(job);
}

}  // namespace perdura::coordinator
