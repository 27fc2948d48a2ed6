// Makes checkpoints of the workers' chunks: collects them until every tile is covered, then commits on a
// thread of its own, since a commit waits for the disk and decisions do not.
#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "coordinator/admin/service.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/index/checkpoint_index.hpp"

namespace perdura::coordinator {

// The chunks of the snapshots under way; one job. Pure.
class chunk_collector {
 public:
  explicit chunk_collector(std::size_t tiles) : tiles_(tiles) {}
  struct snapshot {
    std::vector<storage::tile_chunk> chunks;
    std::vector<storage::chunk_record> bases;
  };
  // All chunks of the snapshot, once this was the last that lacked. A second chunk for the same place
  // replaces the first: after a recovery another owner writes it.
  std::optional<snapshot> add(timeline_number timeline, step_number step, storage::reported_chunk reported);
  // Those that can no longer become complete: snapshots up to this one.
  std::vector<std::pair<timeline_number, step_number>> drop_until(timeline_number timeline, step_number step);

 private:
  using place = std::pair<tile_id, storage::chunk_kind>;
  std::size_t tiles_;
  std::map<std::pair<timeline_number, step_number>, std::map<place, storage::reported_chunk>> open_;
};

class checkpoint_keeper {
 public:
  using done = std::function<void(const storage::manifest&, result<void>)>;

  // `committed` hears of each checkpoint there is from now on, on the keeper's thread.
  static result<std::unique_ptr<checkpoint_keeper>> open(
      const std::filesystem::path& store, const std::filesystem::path& index,
      std::function<void(const storage::checkpoint_key&)> committed = [](const auto&) {});
  ~checkpoint_keeper();  // finishes the commit under way

  // `then` is called on the keeper's thread. Afterwards what the policy does not keep goes.
  void commit(storage::manifest m, storage::retention_policy policy, std::vector<incarnation> live,
              done then);
  // Runs between commits, on the keeper's thread, as `then` does.
  void tend(std::function<std::string(storage::checkpoint_index&)> work,
            std::function<void(const std::string&)> then);
  // From memory: the list as of the last commit.
  std::vector<admin::checkpoint_info> list(const std::string& job) const;
  // The newest of the job that is in order; reads the store.
  result<std::optional<storage::manifest>> newest(const std::string& job);
  // The checkpoint `from` under the name of the job, of which `as` says all but the state: no chunk is
  // copied. Error refused: there is none, it is of another model, or not of a step before `last`.
  result<storage::manifest> fork(const std::string& from, storage::manifest as, step_number last);

 private:
  // With the index; what it gives is called without.
  using task = std::function<std::function<void()>(storage::checkpoint_index&)>;
  void push(task t);
  checkpoint_keeper(std::unique_ptr<storage::checkpoint_index> index,
                    std::function<void(const storage::checkpoint_key&)> committed);
  void work();
  void refresh();

  const std::function<void(const storage::checkpoint_key&)> committed_;
  mutable std::mutex mutex_;  // of what follows but the index
  std::condition_variable changed_;
  std::deque<task> waiting_;
  std::vector<admin::checkpoint_info> known_;
  bool ending_ = false;
  std::mutex index_mutex_;
  std::unique_ptr<storage::checkpoint_index> index_;
  std::thread thread_;
};

}  // namespace perdura::coordinator
