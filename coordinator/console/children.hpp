// Processes of a local cluster, none of which outlives us: each dies with the thread that started it, has a
// process group of its own (so that a terminal's Ctrl-C reaches only us), and grandchildren whose parent died
// become ours.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::console {

class children {
 public:
  struct child {
    std::string name;
    pid_t pid = -1;
    std::filesystem::path output;  // its standard output and error
    std::optional<int> status{};   // as wait() gives it, once it has ended
  };

  children();
  children(const children&) = delete;
  children& operator=(const children&) = delete;
  ~children();  // kills what is left

  result<void> start(const std::string& name, const std::filesystem::path& program,
                     const std::vector<std::string>& arguments, const std::filesystem::path& output);
  // Children that have ended since the last call.
  std::vector<child> reap();
  const child* find(const std::string& name) const;
  // Asks all to end at once (SIGINT: to a node agent SIGTERM is a notice), then kills; grandchildren too.
  // Nothing is left afterwards.
  void end_all(std::chrono::milliseconds patience);
  // True when all have ended within `patience`.
  bool wait_all(std::chrono::milliseconds patience);

 private:
  void kill_descendants() const;
  std::vector<child> all_;
};

// "ended with 1", "was killed by signal 9".
std::string how_it_ended(int status);

}  // namespace perdura::console
