// The coordinator's memory: states by key (term, era, plan, jobs, members) and events in order, in RocksDB.
// What was written survives the process; what was written with `sync`, the machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::storage {

class rocks_store;

inline constexpr std::uint32_t decision_log_format_version = 1;
inline constexpr std::size_t log_entry_bytes_max = std::size_t{16} << 20;

struct decision_log_options {
  std::uint64_t events_max = 100000;  // older ones are dropped; at least 1
};

struct logged_event {
  std::uint64_t sequence{};  // from 1, without gaps
  std::string bytes;
  bool operator==(const logged_event&) const = default;
};

// Written whole or not at all.
struct log_entry {
  std::vector<std::pair<std::string, std::string>> states;  // key, bytes
  std::vector<std::string> erased;                          // keys
  std::vector<std::string> events;
};

// Not thread-safe. Errors: refused when another process has it open.
class decision_log {
 public:
  static result<std::unique_ptr<decision_log>> open(const std::filesystem::path& folder,
                                                    decision_log_options options = {});
  ~decision_log();

  result<void> put_state(std::string_view key, std::string_view bytes, bool sync);
  result<std::optional<std::string>> get_state(std::string_view key) const;
  // Keys that start with `prefix`, sorted, and their bytes.
  result<std::vector<std::pair<std::string, std::string>>> list_states(std::string_view prefix) const;
  // Not synchronized by itself: the next synchronized write takes it along. Gives its sequence.
  result<std::uint64_t> append_event(std::string_view bytes);
  // Several at once; gives the sequence of the last event there is.
  result<std::uint64_t> write(const log_entry& entry, bool sync);

  // At most `count`, from sequence `from` or, where that was dropped, from the oldest there is.
  result<std::vector<logged_event>> read_events(std::uint64_t from, std::size_t count) const;
  // 0: none.
  std::uint64_t last_sequence() const { return next_ - 1; }

 private:
  decision_log(std::unique_ptr<rocks_store> store, decision_log_options options);
  result<void> find_ends();

  std::unique_ptr<rocks_store> store_;
  decision_log_options options_;
  std::uint64_t first_ = 1;  // oldest event kept
  std::uint64_t next_ = 1;
};

}  // namespace perdura::storage
