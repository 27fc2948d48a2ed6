// Brings the newest checkpoint of each job to a tier, behind training's back: on a thread of its own, which
// nobody waits for. A tier that fails is tried again, ever more rarely, and says so; one that is slow gets
// the newest checkpoint next and those in between never.
#pragma once

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "storage/s3/mirror.hpp"

namespace perdura::storage {

struct tier_options {
  std::string name;
  std::size_t keep = 10;  // newest checkpoints of a job
  std::chrono::milliseconds retry_first{2'000};
  std::chrono::milliseconds retry_longest{300'000};
};

// What a person should hear of; made on the tier's thread.
struct tier_event {
  enum class kind : std::uint8_t { brought, failed, recovered };
  kind what{};
  std::string tier;
  checkpoint_key key;
  std::string message;
};

struct tier_status {
  std::string tier;
  std::string where;
  std::map<std::string, checkpoint_key> newest;  // by job: what is there, as far as this process has seen
  std::vector<checkpoint_key> missing;           // committed here, not there yet
  std::string failure;                           // of the last attempt; empty: it succeeded
  unsigned failures_in_a_row = 0;
};

// Brings the job's newest checkpoint that is whole, and newer than `than` if given, from the tier into the
// store; waits for it. None: there is no such checkpoint.
result<std::optional<manifest>> fetch_newest(const object_store& tier, const std::filesystem::path& store,
                                             const std::string& job,
                                             const std::optional<checkpoint_key>& than);

// Thread-safe.
class tier_keeper {
 public:
  using listener = std::function<void(const tier_event&)>;

  tier_keeper(tier_options options, std::unique_ptr<object_store> tier, std::filesystem::path store,
              listener on_event);
  ~tier_keeper();  // what is under way ends, to go on in the next process

  // The thread; it begins with what the store has and the tier lacks: a crash between a commit and its way
  // to the tier.
  void start();

  // Returns at once.
  void committed(const checkpoint_key& key);
  tier_status status() const;

 private:
  void work();
  void catch_up();
  void bring(const checkpoint_key& key);
  void passed_over(const checkpoint_key& key);
  void succeeded(const checkpoint_key& key, const push_report& report);
  void failed(const checkpoint_key& key, const error& why);
  std::optional<checkpoint_key> next_of_pending() const;

  const tier_options options_;
  const std::unique_ptr<object_store> tier_;
  const std::filesystem::path store_;
  const listener on_event_;
  mirror mirror_;  // of the thread

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::map<std::string, checkpoint_key> pending_;  // by job
  std::map<std::string, checkpoint_key> newest_;
  std::string failure_;
  unsigned failures_in_a_row_ = 0;
  bool has_caught_up_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace perdura::storage
