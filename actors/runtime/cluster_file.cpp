// Finding and reading the cluster's file: the part of config_file.hpp that touches the machine.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "actors/runtime/config_file.hpp"

namespace perdura::runtime {

namespace {
std::string value_of(const text_map& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}
}  // namespace

result<file_text> read_config_file(const std::string& path) {
  std::error_code failure;
  const auto status = std::filesystem::status(path, failure);
  if (!std::filesystem::exists(status))
    return error{errc::not_found, "cannot read " + path + ": there is no such file"};
  if (!std::filesystem::is_regular_file(status))
    return error{errc::io, "cannot read " + path + ": it is no file"};
  if (std::filesystem::file_size(path, failure) > config_bytes_max)
    return error{errc::exhausted, "cannot read " + path + ": larger than 1 MiB, this is no configuration"};
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) return error{errc::io, "cannot read " + path + ": the system refused; check its permissions"};
  return file_text{path, text.str()};
}

std::vector<std::string> cluster_file_candidates(const text_map& environment) {
  if (const auto named = value_of(environment, "PERDURA_CONFIG"); !named.empty()) return {named};
  std::vector<std::string> candidates{"perdura.toml"};
  if (const auto xdg = value_of(environment, "XDG_CONFIG_HOME"); !xdg.empty())
    candidates.push_back(xdg + "/perdura/cluster.toml");
  else if (const auto home = value_of(environment, "HOME"); !home.empty())
    candidates.push_back(home + "/.config/perdura/cluster.toml");
  candidates.emplace_back("/etc/perdura/cluster.toml");
  return candidates;
}

result<cluster_file> load_file(const text_map& flags, const std::string& path) {
  const auto environment = process_environment();
  const bool must_exist = !path.empty() || environment.contains("PERDURA_CONFIG");
  const auto candidates = path.empty() ? cluster_file_candidates(environment) : std::vector{path};
  for (const auto& candidate : candidates) {
    auto file = read_config_file(candidate);
    if (file) return resolve_file(flags, environment, std::move(*file));
    if (must_exist || file.failure().code != errc::not_found) return file.failure();
  }
  return resolve_file(flags, environment, std::nullopt);
}

result<cluster_config> load_cluster(const text_map& flags, const std::string& path) {
  auto all = load_file(flags, path);
  if (!all) return all.failure();
  return std::move(all->cluster);
}

text_map process_environment() {
  text_map environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const auto equals = text.find('=');
    if (equals != std::string::npos) environment[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return environment;
}

}  // namespace perdura::runtime
