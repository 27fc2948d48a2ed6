#include "actors/runtime/process.hpp"

#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <vector>

namespace perdura::runtime {

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

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, sizeof name - 1);
  return name[0] == '\0' ? "localhost" : name;
}

std::string machine_label() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return file >> id ? id : host_name();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;
  if (!(file >> size >> resident)) return 0;
  return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace perdura::runtime
