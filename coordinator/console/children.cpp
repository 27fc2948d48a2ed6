#include "coordinator/console/children.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

namespace perdura::console {

namespace {

constexpr std::chrono::milliseconds poll_interval{10};

// Between fork and exec: async-signal-safe calls alone.
[[noreturn]] void run_child(const char* program, char* const* arguments, int output, pid_t parent,
                            int failed_pipe) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the line above
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
  if (const int null = open("/dev/null", O_RDONLY); null >= 0) dup2(null, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(program, arguments);
  const int why = errno;
  [[maybe_unused]] const auto written = write(failed_pipe, &why, sizeof why);
  _exit(127);
}

}  // namespace

// Workers whose node was killed come to us instead of to init.
children::children() { prctl(PR_SET_CHILD_SUBREAPER, 1); }

children::~children() { end_all(std::chrono::milliseconds(0)); }

result<void> children::start(const std::string& name, const std::filesystem::path& program,
                             const std::vector<std::string>& arguments, const std::filesystem::path& output) {
  const int out = open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (out < 0) return error{errc::io, "cannot write " + output.string() + ": " + std::strerror(errno)};
  std::vector<std::string> words{program.filename().string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (auto& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  int failed[2];
  if (pipe2(failed, O_CLOEXEC) != 0) {
    close(out);
    return error{errc::io, "cannot start " + name + ": " + std::strerror(errno)};
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) run_child(program.c_str(), pointers.data(), out, parent, failed[1]);
  close(out);
  close(failed[1]);
  int why = pid < 0 ? errno : 0;
  if (pid > 0 && read(failed[0], &why, sizeof why) == sizeof why) waitpid(pid, nullptr, 0);
  close(failed[0]);
  if (why != 0) return error{errc::io, "cannot start " + program.string() + ": " + std::strerror(why)};
  all_.push_back({name, pid, output});
  return {};
}

std::vector<children::child> children::reap() {
  std::vector<child> ended;
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    for (auto& c : all_)
      if (c.pid == pid) {
        c.status = status;
        ended.push_back(c);
      }
  return ended;
}

const children::child* children::find(const std::string& name) const {
  auto at = std::find_if(all_.begin(), all_.end(), [&](const child& c) { return c.name == name; });
  return at == all_.end() ? nullptr : &*at;
}

bool children::wait_all(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    reap();
    if (std::all_of(all_.begin(), all_.end(), [](const child& c) { return c.status.has_value(); }))
      return true;
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(poll_interval);
  }
}

void children::kill_descendants() const {
  const auto self = std::to_string(getpid());
  std::ifstream list("/proc/" + self + "/task/" + self + "/children");
  for (pid_t pid = 0; list >> pid;) kill(pid, SIGKILL);
}

void children::end_all(std::chrono::milliseconds patience) {
  for (const auto& c : all_)
    if (!c.status && patience.count() > 0) kill(c.pid, SIGINT);
  wait_all(patience);
  for (const auto& c : all_)
    if (!c.status) kill(-c.pid, SIGKILL);
  // What a dead child leaves behind becomes our child, and may have children itself.
  for (kill_descendants(); waitpid(-1, nullptr, 0) > 0; kill_descendants()) {}
  all_.clear();
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "was killed by signal " + std::to_string(WTERMSIG(status));
  return "ended with " + std::to_string(WEXITSTATUS(status));
}

}  // namespace perdura::console
