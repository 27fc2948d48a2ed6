// Where this machine keeps Perdura's things: the cluster's configuration as found, and the folders.
#pragma once

#include <filesystem>
#include <string>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"

namespace perdura::console {

struct settings {
  cluster_config cluster;  // its folders are filled in
  std::string origin;      // the file that was read; empty: defaults alone
};

// `file` as given with --config; empty: discovered.
result<settings> read_settings(const std::string& file);

}  // namespace perdura::console
