// TOML to configuration structs. Unknown keys, wrong types and impossible values are refused, all of them at
// once: one line each with file, line, field and what is allowed.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/node_config.hpp"
#include "actors/base/result.hpp"

namespace perdura::runtime {

// `file_name` is for the errors.
result<job_config> parse_job(const std::string& text, const std::string& file_name);

struct file_text {
  std::string name;
  std::string text;
};
using text_map = std::map<std::string, std::string>;

// All that a cluster's file says.
struct cluster_file {
  cluster_config cluster;
  node_config node;
};

// A flag outranks the environment, that the file, that the default. `flags` by key ("lease_ms",
// "host_label"), `environment` by variable (PERDURA_LEASE_MS, PERDURA_LABELS_HOST; others are ignored).
result<cluster_file> resolve_file(const text_map& flags, const text_map& environment,
                                  const std::optional<file_text>& file);
result<cluster_config> resolve_cluster(const text_map& flags, const text_map& environment,
                                       const std::optional<file_text>& file);

// Reads the file at `path`, errc::not_found if there is none, errc::exhausted if it is over config_bytes_max.
inline constexpr std::size_t config_bytes_max = 1U << 20;
result<file_text> read_config_file(const std::string& path);

// Where the cluster's file is looked for, in this order, the first that exists counts; one named by
// PERDURA_CONFIG must exist.
std::vector<std::string> cluster_file_candidates(const text_map& environment);

// All of the above for a process: `path` ("" if no --config was given), then the candidates.
result<cluster_file> load_file(const text_map& flags, const std::string& path);
result<cluster_config> load_cluster(const text_map& flags, const std::string& path);

text_map process_environment();

}  // namespace perdura::runtime
