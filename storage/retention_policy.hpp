// Which checkpoints of a job are kept. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "storage/layout.hpp"

namespace perdura::storage {

struct retention_policy {
  std::uint32_t keep_last = 3;         // at least 1
  std::uint32_t keep_every_hours = 0;  // and the first of each so many hours since 1970; 0: none
};

struct retention_candidate {
  checkpoint_key key;
  std::uint64_t created_unix_ms{};
  bool is_sound = true;  // a damaged one must not push out a sound one
  bool is_tagged = false;
};

struct retention_choice {
  std::vector<checkpoint_key> dropped;
  // What is older, and written for nothing that is kept, is garbage. None: nothing is.
  const retention_candidate* oldest_of_last = nullptr;
};

// `candidates`: all of one job, newest first.
retention_choice choose(std::span<const retention_candidate> candidates, const retention_policy& policy);

}  // namespace perdura::storage
