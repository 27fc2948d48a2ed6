#include "coordinator/console/settings.hpp"

#include <algorithm>

#include "actors/runtime/config_file.hpp"
#include "actors/runtime/folders.hpp"

namespace perdura::console {

namespace fs = std::filesystem;

namespace {

// The file that load_cluster read.
std::string origin_of(const std::string& file) {
  if (!file.empty()) return file;
  const auto candidates = runtime::cluster_file_candidates(runtime::process_environment());
  std::error_code failed;
  const auto found = std::find_if(candidates.begin(), candidates.end(),
                                  [&](const std::string& name) { return fs::exists(name, failed); });
  return found == candidates.end() ? "" : *found;
}

}  // namespace

result<settings> read_settings(const std::string& file) {
  auto cluster = runtime::load_cluster({}, file);
  if (!cluster) return cluster.failure();
  auto folders = runtime::choose_folders(*cluster);
  if (!folders) return folders.failure();
  settings s{std::move(*cluster), origin_of(file)};
  s.cluster.data_folder = folders->data;
  s.cluster.log_folder = folders->log;
  s.cluster.runtime_folder = folders->runtime;
  return s;
}

}  // namespace perdura::console
