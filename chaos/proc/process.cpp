#include "chaos/proc/process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <deque>
#include <fstream>
#include <iterator>
#include <thread>
#include <utility>

namespace perdura::chaos {
namespace {

constexpr milliseconds poll_interval{3};
constexpr int cannot_execute = 127;

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (auto& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

// In the child, between fork and exec: system calls alone.
[[noreturn]] void become(char** arguments, char** environment, int output, int network, pid_t parent) {
  ::setpgid(0, 0);  // a terminal's Ctrl-C is for whoever started us; it ends its children itself
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(cannot_execute);
  if (network >= 0 && ::setns(network, CLONE_NEWNET) != 0) ::_exit(cannot_execute);
  int input = ::open("/dev/null", O_RDONLY);
  ::dup2(input, STDIN_FILENO);
  ::dup2(output, STDOUT_FILENO);
  ::dup2(output, STDERR_FILENO);
  ::execve(arguments[0], arguments, environment);
  ::_exit(cannot_execute);
}

bool is_zombie(const std::filesystem::path& folder) {
  std::ifstream file(folder / "stat");
  std::string text{std::istreambuf_iterator<char>(file), {}};
  auto name_end = text.rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text.size() || text[name_end + 2] == 'Z';
}

}  // namespace

process::process(const launch& what) {
  std::vector<std::string> arguments{what.program.string()};
  arguments.insert(arguments.end(), what.arguments.begin(), what.arguments.end());
  std::vector<std::string> environment = what.environment;
  for (char** e = environ; *e != nullptr; ++e) environment.emplace_back(*e);
  auto argv = pointers(arguments);
  auto envp = pointers(environment);
  auto target = what.output.empty() ? std::filesystem::path("/dev/null") : what.output;
  int output = ::open(target.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (output < 0) throw failure("cannot write " + target.string() + ": " + std::strerror(errno));
  pid_t parent = ::getpid();
  pid_ = ::fork();
  if (pid_ == 0) become(argv.data(), envp.data(), output, what.network, parent);
  ::close(output);
  if (pid_ < 0) throw failure("cannot start " + what.program.string() + ": " + std::strerror(errno));
}

process::process(process&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), exit_code_(std::exchange(other.exit_code_, std::nullopt)) {}

process& process::operator=(process&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
    exit_code_ = std::exchange(other.exit_code_, std::nullopt);
  }
  return *this;
}

process::~process() { end(); }

void process::end() noexcept {
  if (pid_ <= 0 || exit_code_) return;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {}
  exit_code_ = 128 + SIGKILL;
}

void process::signal(int number) const {
  if (pid_ > 0 && !exit_code_) ::kill(pid_, number);
}

std::optional<int> process::wait(milliseconds limit) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (!exit_code_) {
    int status = 0;
    pid_t ended = ::waitpid(pid_, &status, WNOHANG);
    if (ended == pid_) {
      exit_code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return std::nullopt;
    } else {
      std::this_thread::sleep_for(poll_interval);
    }
  }
  return exit_code_;
}

std::vector<pid_t> processes_with(const std::string& name_and_value) {
  std::vector<pid_t> found;
  std::string needle = '\0' + name_and_value + '\0';
  std::error_code gone;  // processes end while we look
  for (const auto& entry : std::filesystem::directory_iterator("/proc", gone)) {
    std::string name = entry.path().filename();
    pid_t pid = 0;
    auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc{} || end != name.data() + name.size()) continue;
    std::ifstream file(entry.path() / "environ", std::ios::binary);
    std::string text = '\0' + std::string{std::istreambuf_iterator<char>(file), {}} + '\0';
    if (text.find(needle) != std::string::npos && !is_zombie(entry.path())) found.push_back(pid);
  }
  return found;
}

std::string tail(const std::filesystem::path& file, std::size_t lines) {
  std::ifstream in(file);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(std::move(line));
    if (last.size() > lines) last.pop_front();
  }
  std::string out;
  for (const auto& line : last) out += "    " + line + "\n";
  return out;
}

void wait_until(const std::string& what, milliseconds limit, const std::function<bool()>& is_so) {
  auto deadline = std::chrono::steady_clock::now() + limit;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() >= deadline)
      throw failure("waited " + std::to_string(limit.count()) + " ms for " + what);
    std::this_thread::sleep_for(poll_interval);
  }
}

temporary_folder::temporary_folder(const std::string& prefix) {
  std::string pattern = (std::filesystem::temp_directory_path() / (prefix + "-XXXXXX")).string();
  if (::mkdtemp(pattern.data()) == nullptr) throw failure("cannot make a folder like " + pattern);
  path_ = pattern;
}

temporary_folder::~temporary_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace perdura::chaos
