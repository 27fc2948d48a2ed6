// Copy on write, tile by tile: a snapshot's copies are made by a thread of their own while the state is only
// read; what is about to change before it was copied is copied by whoever changes it. So training waits for
// what is left at most, and usually for nothing.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/base/blob.hpp"
#include "actors/base/ids.hpp"

namespace perdura::worker {

class late_copies {
 public:
  explicit late_copies(std::function<blob(tile_id)> copy) : copy_(std::move(copy)) {}
  ~late_copies();  // drops what waits
  late_copies(const late_copies&) = delete;
  late_copies& operator=(const late_copies&) = delete;

  // The tile as it is now. `done` is called on some thread, soon or with the next change.
  void want(tile_id tile, std::function<void(blob)> done);
  // By the one that changes state, before it does: afterwards nobody reads that tile any more.
  void before_change(tile_id tile);
  void before_all_change();

 private:
  struct wanted {
    tile_id tile;
    std::function<void(blob)> done;
  };
  void work();
  std::optional<wanted> take(std::optional<tile_id> tile);

  const std::function<blob(tile_id)> copy_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<wanted> waiting_;
  std::optional<tile_id> copying_;  // by the thread
  bool ending_ = false;
  std::thread thread_;  // begun with the first wish
};

}  // namespace perdura::worker
