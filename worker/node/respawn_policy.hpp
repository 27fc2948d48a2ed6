// How long to wait before a child that ended is started again: at once for one that had been well, ever
// longer for one that keeps ending. Pure: no clock, no process.
#pragma once

#include <chrono>
#include <string>

namespace perdura::worker {

class respawn_policy {
 public:
  struct options {
    std::chrono::milliseconds first{50};       // above 0
    std::chrono::milliseconds longest{5000};   // not below first
    std::chrono::milliseconds healthy{60000};  // a child that lived so long starts the count anew
  };
  struct decision {
    std::chrono::milliseconds delay{};
    unsigned failures_in_a_row{};
    std::string reason;  // one line, for the event log
  };

  respawn_policy() : respawn_policy(options{}) {}
  explicit respawn_policy(options o);

  // The child has ended, as `how` says, after it had lived so long. A start that failed is a life of 0.
  decision on_exit(std::chrono::milliseconds lived, const std::string& how);

 private:
  options options_;
  unsigned failures_ = 0;
};

}  // namespace perdura::worker
