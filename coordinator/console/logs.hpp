// `perdura logs`: the end of the log files of this machine's processes, and what is added to them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "coordinator/console/exit_code.hpp"

namespace perdura::console {

struct logs_options {
  std::filesystem::path folder{};
  std::string kind{};  // "coordinator", "node", "worker"; empty: all
  std::string name{};  // "node-1", "node-1/0"; empty: all of the kind
  std::uint32_t lines = 20;
  bool follow = false;
};

// Rotated files (coordinator.1.log) are left out. Sorted.
std::vector<std::filesystem::path> log_files(const logs_options& options);

// With more than one file each line begins with its file's name. `interrupted` ends following.
exit_code show_logs(const logs_options& options, std::ostream& out, std::ostream& err,
                    const std::function<bool()>& interrupted);

}  // namespace perdura::console
