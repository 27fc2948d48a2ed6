#include "coordinator/console/launch.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace perdura::console {

namespace fs = std::filesystem;

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
