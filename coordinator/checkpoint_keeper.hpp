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
  // All chunks of the snapshot, once this was the last that lacked. A second chunk for the same place
  // replaces the first: after a recovery another owner writes it.
  std::optional<std::vector<storage::tile_chunk>> add(timeline_number timeline, step_number step,
                                                      const storage::tile_chunk& chunk);
  // Those that can no longer become complete: snapshots up to this one.
  std::vector<std::pair<timeline_number, step_number>> drop_until(timeline_number timeline, step_number step);

 private:
  using place = std::pair<tile_id, storage::chunk_kind>;
  std::size_t tiles_;
  std::map<std::pair<timeline_number, step_number>, std::map<place, storage::tile_chunk>> open_;
};

class checkpoint_keeper {
 public:
  using done = std::function<void(const storage::manifest&, result<void>)>;

  static result<std::unique_ptr<checkpoint_keeper>> open(const std::filesystem::path& store,
                                                         const std::filesystem::path& index);
  ~checkpoint_keeper();  // finishes the commit under way

  // `then` is called on the keeper's thread. Afterwards older ones than the newest `keep` go.
  void commit(storage::manifest m, std::uint32_t keep, std::vector<incarnation> live, done then);
  // From memory: the list as of the last commit.
  std::vector<admin::checkpoint_info> list(const std::string& job) const;
  // The newest of the job that is in order; reads the store.
  result<std::optional<storage::manifest>> newest(const std::string& job);

 private:
  struct task {
    storage::manifest contents;
    std::uint32_t keep{};
    std::vector<incarnation> live;
    done then;
  };
  explicit checkpoint_keeper(std::unique_ptr<storage::checkpoint_index> index);
  void work();
  void refresh();

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
