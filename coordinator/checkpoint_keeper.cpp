#include "coordinator/checkpoint_keeper.hpp"

#include <algorithm>
#include <iterator>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/tags.hpp"

namespace perdura::coordinator {

std::optional<chunk_collector::snapshot> chunk_collector::add(timeline_number timeline, step_number step,
                                                              storage::reported_chunk reported) {
  auto& places = open_[{timeline, step}];
  const place at{reported.chunk.tile, reported.chunk.kind};
  places.insert_or_assign(at, std::move(reported));
  if (places.size() < tiles_ * storage::all_kinds.size()) return std::nullopt;
  snapshot all;
  for (auto& [where, c] : places) {
    all.chunks.push_back(std::move(c.chunk));
    std::move(c.bases.begin(), c.bases.end(), std::back_inserter(all.bases));
  }
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

result<std::unique_ptr<checkpoint_keeper>> checkpoint_keeper::open(
    const std::filesystem::path& store, const std::filesystem::path& index,
    std::function<void(const storage::checkpoint_key&)> committed) {
  auto opened = storage::checkpoint_index::open(store, index);
  if (!opened) return opened.failure();
  return std::unique_ptr<checkpoint_keeper>(new checkpoint_keeper(std::move(*opened), std::move(committed)));
}

checkpoint_keeper::checkpoint_keeper(std::unique_ptr<storage::checkpoint_index> index,
                                     std::function<void(const storage::checkpoint_key&)> committed)
    : committed_(std::move(committed)), index_(std::move(index)) {
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

void checkpoint_keeper::push(task t) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(t));
  }
  changed_.notify_one();
}

void checkpoint_keeper::commit(storage::manifest m, storage::retention_policy policy,
                               std::vector<incarnation> live, done then) {
  push([this, m = std::move(m), policy, live = std::move(live), then = std::move(then)](auto& index) {
    auto committed = index.commit(m);
    if (committed) committed_(m.key());
    if (committed)
      if (const auto freed = index.retain(m.job, policy, live); !freed)
        log::warn("old checkpoints stay: " + freed.failure().message);
    return [m, then, committed] { then(m, committed); };
  });
}

void checkpoint_keeper::tend(std::function<std::string(storage::checkpoint_index&)> work,
                             std::function<void(const std::string&)> then) {
  push([work = std::move(work), then = std::move(then)](auto& index) {
    return [then, outcome = work(index)] { then(outcome); };
  });
}

void checkpoint_keeper::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    std::function<void()> then;
    {
      const std::lock_guard index_lock(index_mutex_);
      then = next(*index_);
    }
    refresh();
    then();
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

result<storage::manifest> checkpoint_keeper::fork(const std::string& from, storage::manifest as,
                                                  step_number last) {
  const auto refused = [&](const std::string& why) {
    return error{errc::refused, "job " + as.job + " cannot start from " + from + ": " + why};
  };
  const std::lock_guard lock(index_mutex_);
  const auto key = storage::find_checkpoint(index_->objects(), from);
  if (!key) return refused(key.failure().message);
  auto m = storage::read_manifest(index_->objects(), *key);
  if (!m) return refused(m.failure().message);
  if (m->tiles != as.tiles || m->arrays != as.arrays) return refused("it is of another model");
  if (m->standing.step >= last)
    return refused("it is of step " + to_string(m->standing.step) + ", and the job ends after step " +
                   to_string(last));
  as.standing = m->standing;
  as.standing.timeline = {};  // older than all that this job will do
  as.numeric_class = m->numeric_class;
  as.tensors = std::move(m->tensors);
  as.chunks = std::move(m->chunks);
  as.bases = std::move(m->bases);
  if (auto committed = index_->commit(as); !committed) return refused(committed.failure().message);
  committed_(as.key());
  return as;
}

result<std::optional<storage::manifest>> checkpoint_keeper::newest(const std::string& job) {
  const std::lock_guard lock(index_mutex_);
  return index_->latest_valid(job);
}

}  // namespace perdura::coordinator
