#include "coordinator/console/launch.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <sstream>

namespace perdura::console {

namespace fs = std::filesystem;

result<fs::path> find_program(const std::string& name) {
  std::vector<fs::path> folders;
  std::error_code failed;
  if (const auto self = fs::read_symlink("/proc/self/exe", failed); !failed) {
    folders.push_back(self.parent_path());
    folders.push_back(self.parent_path().parent_path() / "libexec" / "perdura");
  }
  std::string looked = folders.empty() ? "" : folders[0].string() + ", " + folders[1].string() + " and ";
  if (const char* path = std::getenv("PATH")) {
    std::istringstream parts(path);
    for (std::string folder; std::getline(parts, folder, ':');)
      if (!folder.empty()) folders.emplace_back(folder);
  }
  for (const auto& folder : folders)
    if (auto program = folder / name;
        fs::is_regular_file(program, failed) && access(program.c_str(), X_OK) == 0)
      return program;
  return error{errc::not_found, name + " is not installed: looked in " + looked + "PATH"};
}

error become(const fs::path& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program.filename().string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(program.c_str(), pointers.data());
  return {errc::io, "cannot start " + program.string() + ": " + std::strerror(errno)};
}

const std::vector<external_command>& external_commands() {
  static const std::vector<external_command> all{
      {"coordinator", "run the coordinator", "perdura-coordinator", {}},
      {"node", "run this machine's node agent; it starts the workers", "perdura-node", {}},
      {"worker", "run one worker by hand", "perdura-worker", {}},
      {"generate", "sample pictures from a checkpoint", "perdura-worker", {"--once"}},
  };
  return all;
}

}  // namespace perdura::console
