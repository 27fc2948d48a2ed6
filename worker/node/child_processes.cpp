#include "worker/node/child_processes.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <map>

namespace perdura::worker {
namespace {

using std::chrono::milliseconds;

// All that the child needs between fork and exec, made before: there it may not allocate.
struct launch {
  std::vector<std::string> environment;
  std::vector<char*> argv;
  std::vector<char*> envp;
  int output = -1;        // or -1: inherited
  int failure_pipe = -1;  // closed by exec; else carries errno
  pid_t parent = 0;
};

std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& additions) {
  std::map<std::string, std::string> merged;
  for (char** at = environ; at != nullptr && *at != nullptr; ++at) {
    const std::string entry = *at;
    const auto equals = entry.find('=');
    if (equals != std::string::npos) merged[entry.substr(0, equals)] = entry.substr(equals + 1);
  }
  for (const auto& [name, value] : additions) merged[name] = value;
  std::vector<std::string> lines;
  for (const auto& [name, value] : merged) lines.push_back(name + "=" + value);
  return lines;
}

[[noreturn]] void give_up(const launch& l) {
  const int failure = errno;
  [[maybe_unused]] const auto written = ::write(l.failure_pipe, &failure, sizeof failure);
  ::_exit(127);
}

// In the child. Only what is safe after a fork of a process with threads.
[[noreturn]] void become(const launch& l) {
  ::setpgid(0, 0);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(l);
  // The parent may have ended before the line above; then nobody would kill this child.
  if (::getppid() != l.parent) ::_exit(127);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  for (int s = 1; s < NSIG; ++s) ::sigaction(s, &by_default, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int input = ::open("/dev/null", O_RDONLY);
  if (input < 0 || ::dup2(input, STDIN_FILENO) < 0) give_up(l);
  if (l.output >= 0 && (::dup2(l.output, STDOUT_FILENO) < 0 || ::dup2(l.output, STDERR_FILENO) < 0))
    give_up(l);
  ::syscall(SYS_close_range, STDERR_FILENO + 1U, ~0U, CLOSE_RANGE_CLOEXEC);
  ::execvpe(l.argv[0], l.argv.data(), l.envp.data());
  give_up(l);
}

std::string words_of(int status) {
  if (WIFEXITED(status)) return "exited with code " + std::to_string(WEXITSTATUS(status));
  const char* name = ::sigabbrev_np(WTERMSIG(status));
  std::string words = "was killed by " + (name != nullptr ? "SIG" + std::string(name)
                                                          : "signal " + std::to_string(WTERMSIG(status)));
  if (WCOREDUMP(status)) words += " and left a core dump";
  return words;
}

error cannot_start(const child_spec& spec, const std::string& why) {
  return {errc::io,
          "cannot start " + spec.name + " (" + (spec.argv.empty() ? "" : spec.argv[0]) + "): " + why};
}

// errno of what failed between fork and exec; 0 when exec did not fail.
int read_failure(int descriptor) {
  int failure = 0;
  while (::read(descriptor, &failure, sizeof failure) < 0 && errno == EINTR) {}
  return failure;
}

}  // namespace

child_processes::child_processes() : wake_descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  PERDURA_CHECK(wake_descriptor_ >= 0, "a process has a descriptor left for its agent");
}

child_processes::~child_processes() {
  for (auto& c : children_) {
    ::kill(-c.pid, SIGKILL);
    reap(c);
  }
  ::close(wake_descriptor_);
}

result<child_number> child_processes::start(const child_spec& spec) {
  check_thread();
  if (spec.argv.empty())
    return error{errc::invalid_argument, "cannot start " + spec.name + ": argv is empty"};
  launch l;
  l.environment = merged_environment(spec.environment);
  for (const auto& word : spec.argv) l.argv.push_back(const_cast<char*>(word.c_str()));
  for (const auto& line : l.environment) l.envp.push_back(const_cast<char*>(line.c_str()));
  l.argv.push_back(nullptr);
  l.envp.push_back(nullptr);
  l.parent = ::getpid();
  if (!spec.output.empty()) {
    l.output = ::open(spec.output.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (l.output < 0)
      return cannot_start(spec, "its output file " + spec.output + ": " + std::strerror(errno));
  }
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) {
    const int failure = errno;
    if (l.output >= 0) ::close(l.output);
    return cannot_start(spec, std::strerror(failure));
  }
  l.failure_pipe = ends[1];

  const pid_t pid = ::fork();
  if (pid == 0) become(l);
  int failure = pid < 0 ? errno : 0;
  ::close(ends[1]);
  if (l.output >= 0) ::close(l.output);
  if (pid > 0) failure = read_failure(ends[0]);
  ::close(ends[0]);
  const int pidfd = pid > 0 && failure == 0 ? static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)) : -1;
  if (pid > 0 && failure == 0 && pidfd < 0) failure = errno;
  if (failure != 0) {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    return cannot_start(spec, std::strerror(failure));
  }
  children_.push_back({child_number(++last_number_), spec.name, pid, pidfd, clock::now()});
  return children_.back().number;
}

std::vector<child_exit> child_processes::wait(milliseconds patience) {
  check_thread();
  const auto until = clock::now() + patience;
  std::vector<child_exit> ended;
  while (true) {
    kill_overdue();
    std::vector<pollfd> watched{{wake_descriptor_, POLLIN, 0}};
    for (const auto& c : children_) watched.push_back({c.pidfd, POLLIN, 0});
    const auto left = std::chrono::ceil<milliseconds>(until - clock::now());
    const auto timeout = until_next_kill(std::max(left, milliseconds(0)));
    const int ready = ::poll(watched.data(), watched.size(),
                             static_cast<int>(std::min<long long>(timeout.count(), 1 << 30)));
    // A signal handler that wants to be heard calls `wake`.
    if (ready < 0 && errno == EINTR) continue;
    std::size_t at = 1;
    for (auto c = children_.begin(); c != children_.end(); ++at) {
      if ((watched[at].revents & POLLIN) == 0) {
        ++c;
        continue;
      }
      ended.push_back(reap(*c));
      c = children_.erase(c);
    }
    std::uint64_t count = 0;
    const bool woken = ::read(wake_descriptor_, &count, sizeof count) > 0;
    if (woken || !ended.empty() || clock::now() >= until) return ended;
  }
}

void child_processes::wake() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_descriptor_, &one, sizeof one);
}

result<void> child_processes::terminate(child_number number, milliseconds grace) {
  check_thread();
  auto* c = find(number);
  if (c == nullptr) return error{errc::not_found, "child " + to_string(number) + " has ended already"};
  ::kill(-c->pid, SIGTERM);
  c->kill_at = std::min(c->kill_at, clock::now() + grace);
  return {};
}

result<void> child_processes::kill(child_number number) {
  check_thread();
  auto* c = find(number);
  if (c == nullptr) return error{errc::not_found, "child " + to_string(number) + " has ended already"};
  ::kill(-c->pid, SIGKILL);
  return {};
}

pid_t child_processes::pid_of(child_number number) const {
  for (const auto& c : children_)
    if (c.number == number) return c.pid;
  return 0;
}

child_processes::child* child_processes::find(child_number number) {
  for (auto& c : children_)
    if (c.number == number) return &c;
  return nullptr;
}

void child_processes::kill_overdue() {
  for (auto& c : children_) {
    if (c.kill_at > clock::now()) continue;
    ::kill(-c.pid, SIGKILL);
    c.kill_at = clock::time_point::max();
  }
}

milliseconds child_processes::until_next_kill(milliseconds patience) const {
  for (const auto& c : children_)
    if (c.kill_at != clock::time_point::max())
      patience = std::min(
          patience, std::max(std::chrono::ceil<milliseconds>(c.kill_at - clock::now()), milliseconds(0)));
  return patience;
}

child_exit child_processes::reap(child& c) {
  // First end its children: until it is reaped its group's number cannot be given to another.
  siginfo_t ignored{};
  while (::waitid(P_PID, static_cast<id_t>(c.pid), &ignored, WEXITED | WNOWAIT) < 0 && errno == EINTR) {}
  ::kill(-c.pid, SIGKILL);
  int status = 0;
  while (::waitpid(c.pid, &status, 0) < 0 && errno == EINTR) {}
  ::close(c.pidfd);
  child_exit e;
  e.child = c.number;
  e.name = c.name;
  e.pid = c.pid;
  e.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
  e.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  e.lived = std::chrono::duration_cast<milliseconds>(clock::now() - c.started);
  e.words = words_of(status);
  return e;
}

void child_processes::check_thread() const {
  PERDURA_CHECK(std::this_thread::get_id() == thread_, "children are started and watched by one thread");
}

}  // namespace perdura::worker
