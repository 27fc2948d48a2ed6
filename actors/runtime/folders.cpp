#include "actors/runtime/folders.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace perdura::runtime {

namespace {

class chooser {
 public:
  chooser(const text_map& environment, bool is_root) : environment_(environment), is_root_(is_root) {}

  // `xdg`: the variable that names the base, `at_home` the base below HOME if it is not set.
  result<std::string> choose(const std::string& configured, const char* key, const char* for_root,
                             const char* xdg, const std::string& at_home, const char* below) const {
    if (!configured.empty()) return std::filesystem::absolute(configured).lexically_normal().string();
    if (is_root_) return std::string(for_root);
    // The XDG specification wants relative paths ignored.
    if (const auto base = value(xdg); base.starts_with('/')) return base + below;
    if (at_home.starts_with('/')) return at_home + below;
    if (const auto home = value("HOME"); !home.empty()) return home + "/" + at_home + below;
    return error{errc::not_found, std::string("cannot choose ") + key + ": HOME is not set; set HOME, " +
                                      xdg + " or " + key + " in the cluster's file"};
  }

 private:
  std::string value(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  const text_map& environment_;
  bool is_root_;
};

}  // namespace

result<folders> choose_folders(const cluster_config& config, const text_map& environment, bool is_root,
                               unsigned user_id) {
  const chooser c(environment, is_root);
  auto data = c.choose(config.data_folder, "data_folder", "/var/lib/perdura", "XDG_DATA_HOME", ".local/share",
                       "/perdura");
  if (!data) return data.failure();
  auto log = c.choose(config.log_folder, "log_folder", "/var/log/perdura", "XDG_STATE_HOME", ".local/state",
                      "/perdura/log");
  if (!log) return log.failure();
  auto runtime = c.choose(config.runtime_folder, "runtime_folder", "/run/perdura", "XDG_RUNTIME_DIR",
                          "/tmp/perdura-" + std::to_string(user_id), "/perdura");
  if (!runtime) return runtime.failure();
  return folders{std::move(*data), std::move(*log), std::move(*runtime)};
}

result<folders> choose_folders(const cluster_config& config) {
  return choose_folders(config, process_environment(), ::geteuid() == 0, ::geteuid());
}

result<void> make_folders(const folders& f) {
  for (const auto& folder : {f.data, f.log, f.runtime}) {
    std::error_code failure;
    const bool existed = std::filesystem::is_directory(folder, failure);
    std::filesystem::create_directories(folder, failure);
    if (!failure && !existed)
      std::filesystem::permissions(folder, std::filesystem::perms::owner_all, failure);
    if (failure)
      return error{errc::io, "cannot make the folder " + folder + ": " + failure.message() +
                                 "; choose others with data_folder, log_folder, runtime_folder"};
    // A folder in /tmp may have been put there by somebody else.
    struct stat status {};
    if (::stat(folder.c_str(), &status) != 0 || status.st_uid != ::geteuid() ||
        ::access(folder.c_str(), W_OK) != 0)
      return error{errc::refused,
                   "cannot use the folder " + folder + ": it belongs to another user or is read-only"};
  }
  return {};
}

}  // namespace perdura::runtime
