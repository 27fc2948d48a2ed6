// Writes a worker's part of a checkpoint behind training: tiles come as copies, go into its packs on a thread
// of their own, and are reported once all of them are durable. One snapshot at a time: a second that comes
// while the disk is still busy with the first is skipped, with a warning, and training never waits. The last
// step's is never skipped.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "actors/base/blob.hpp"
#include "actors/base/config.hpp"
#include "actors/base/control.hpp"
#include "storage/checkpoint_writer.hpp"

namespace perdura::worker {

class snapshots {
 public:
  // `report` is called on the writer's thread.
  snapshots(const std::string& store, incarnation self, const checkpoint_config& how,
            std::function<void(std::vector<chunk_report>)> report);
  ~snapshots();
  snapshots(const snapshots&) = delete;
  snapshots& operator=(const snapshots&) = delete;

  // One of `of` tiles of the snapshot. `at` is the era in which it was taken: a recovery may divide the same
  // snapshot anew among its writers.
  void add(const storage::checkpoint_key& key, era at, tile_id tile, std::uint32_t of, blob state,
           bool is_last);

 private:
  using attempt = std::pair<storage::checkpoint_key, era>;
  struct piece {
    attempt of_attempt;
    tile_id tile;
    std::uint32_t of{};
    blob state;
  };
  void work();
  void write(const piece& p);
  void rest(std::uint64_t bytes_before);

  const incarnation self_;
  const double bytes_per_s_;  // 0: not limited
  const std::function<void(std::vector<chunk_report>)> report_;
  storage::checkpoint_writer writer_;
  std::optional<attempt> writing_;  // the writer's thread alone
  std::vector<chunk_report> written_;
  std::uint32_t tiles_written_ = 0;
  bool failed_ = false;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<piece> waiting_;
  std::optional<storage::checkpoint_key> accepted_;  // the newest that is not skipped
  std::optional<storage::checkpoint_key> skipped_;
  bool busy_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::worker
