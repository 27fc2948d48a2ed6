// Where a process keeps what outlives it (data), what people read (logs) and what dies with the machine
// (runtime).
#pragma once

#include <string>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"
#include "actors/runtime/config_file.hpp"

namespace perdura::runtime {

struct folders {
  std::string data;
  std::string log;
  std::string runtime;
};

// Configured ones (flag, environment, file) first, else /var/lib, /var/log and /run for root, the XDG folders
// for users. errc::not_found if neither a setting nor HOME says where.
result<folders> choose_folders(const cluster_config& config, const text_map& environment, bool is_root,
                               unsigned user_id);
// For this process.
result<folders> choose_folders(const cluster_config& config);

// Makes them, readable by their owner alone.
result<void> make_folders(const folders& f);

}  // namespace perdura::runtime
