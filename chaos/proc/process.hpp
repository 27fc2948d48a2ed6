// Real processes, started and killed by tests and scenarios. Nothing started here outlives its owner:
// children die with the thread that started them, and a tag in the environment finds grandchildren whoever
// their parent is.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace perdura::chaos {

using std::chrono::milliseconds;

// What a test or scenario gave up on. Says what was awaited and what was seen instead.
struct failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct launch {
  std::filesystem::path program;
  std::vector<std::string> arguments{};
  std::vector<std::string> environment{};  // NAME=VALUE, on top of ours
  std::filesystem::path output{};          // standard output and error; empty: discarded
  int network = -1;                        // a network namespace's descriptor; -1: ours
};

class process {
 public:
  // Throws failure when the program cannot be started.
  explicit process(const launch& what);
  process(process&& other) noexcept;
  process& operator=(process&& other) noexcept;
  ~process();  // kills it

  pid_t pid() const { return pid_; }
  bool is_running() { return !wait(milliseconds{0}); }
  void signal(int number) const;
  // Its exit code, 128 + N when signal N ended it; none while it still runs after `limit`.
  std::optional<int> wait(milliseconds limit);

 private:
  void end() noexcept;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

// Processes that live (zombies do not) with NAME=VALUE in the environment they were started with.
std::vector<pid_t> processes_with(const std::string& name_and_value);

// The last lines of a text file, indented, for a failure's report.
std::string tail(const std::filesystem::path& file, std::size_t lines);

// Asks every few milliseconds until it is so. Throws failure(`what`) after `limit`.
void wait_until(const std::string& what, milliseconds limit, const std::function<bool()>& is_so);

// A folder under the system's temporary one, removed with all in it.
class temporary_folder {
 public:
  explicit temporary_folder(const std::string& prefix);
  temporary_folder(const temporary_folder&) = delete;
  temporary_folder& operator=(const temporary_folder&) = delete;
  ~temporary_folder();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace perdura::chaos
