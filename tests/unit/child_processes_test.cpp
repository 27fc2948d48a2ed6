#include "worker/node/child_processes.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace perdura;
using namespace perdura::worker;
using namespace std::chrono_literals;

namespace {

constexpr auto patience = 20s;  // that only a failure takes

struct temporary_folder {
  temporary_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "perdura-node-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~temporary_folder() { std::filesystem::remove_all(path); }
  std::filesystem::path path;
};

child_spec shell(const std::string& script) { return {"shell", {"/bin/sh", "-c", script}, {}, {}}; }

std::string text_of(const std::filesystem::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Runs to its end and gives what it wrote.
std::string output_of(child_spec spec) {
  temporary_folder folder;
  spec.output = folder.path / "output";
  child_processes children;
  REQUIRE(children.start(spec).has_value());
  REQUIRE(children.wait(patience).size() == 1);
  return text_of(spec.output);
}

child_exit exit_of(const std::string& script) {
  child_processes children;
  REQUIRE(children.start(shell(script)).has_value());
  auto ended = children.wait(patience);
  REQUIRE(ended.size() == 1);
  return ended[0];
}

// Blocks until the child has got as far as writing to the file.
void wait_for_text(const std::filesystem::path& file) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (text_of(file).find('\n') == std::string::npos) {
    REQUIRE(std::chrono::steady_clock::now() < end);
    ::usleep(1000);
  }
}

bool ends(pid_t pid) {
  const int pidfd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (pidfd < 0) return true;
  pollfd watched{pidfd, POLLIN, 0};
  const int ready = ::poll(&watched, 1, 20'000);
  ::close(pidfd);
  return ready == 1;
}

}  // namespace

TEST_CASE("how a child ended is told in words") {
  CHECK(exit_of("exit 0").words == "exited with code 0");
  const auto failed = exit_of("exit 3");
  CHECK(failed.words == "exited with code 3");
  CHECK(failed.code == 3);
  CHECK(failed.signal == 0);
  CHECK(failed.name == "shell");
  const auto killed = exit_of("kill -KILL $$");
  CHECK(killed.words == "was killed by SIGKILL");
  CHECK(killed.signal == SIGKILL);
}

TEST_CASE("argv, environment and output reach the child") {
  child_spec spec{"echo", {"sh", "-c", "echo \"$1|$COLOUR|$HOME\"; echo loud >&2", "sh", "a b"}, {}, {}};
  spec.environment = {{"COLOUR", "green=1"}, {"HOME", "/elsewhere"}};
  CHECK(output_of(spec) == "a b|green=1|/elsewhere\nloud\n");
}

TEST_CASE("output is appended to what is there") {
  temporary_folder folder;
  child_spec spec = shell("echo again");
  spec.output = folder.path / "log";
  std::ofstream(spec.output) << "before\n";
  child_processes children;
  REQUIRE(children.start(spec).has_value());
  children.wait(patience);
  CHECK(text_of(spec.output) == "before\nagain\n");
}

TEST_CASE(
    "a child has an empty stdin, no descriptor but 0 to 2, a group of its own and no signal blocked or "
    "ignored") {
  const int leak = ::open("/dev/null", O_RDONLY);  // not closed on exec
  auto* before = std::signal(SIGPIPE, SIG_IGN);
  sigset_t usr1;
  sigset_t old;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  sigprocmask(SIG_BLOCK, &usr1, &old);
  CHECK(output_of(shell("cat; ls /proc/self/fd | grep -v 3 | tr '\\n' ' '")) == "0 1 2 ");
  const std::string status = output_of(shell("exec cat /proc/self/status"));
  CHECK(status.find("SigBlk:\t0000000000000000") != std::string::npos);
  CHECK(status.find("SigIgn:\t0000000000000000") != std::string::npos);
  CHECK(output_of(shell("cut -d' ' -f5 /proc/$$/stat | grep -cx $$")) == "1\n");
  sigprocmask(SIG_SETMASK, &old, nullptr);
  std::signal(SIGPIPE, before);
  ::close(leak);
}

TEST_CASE("what cannot be started is an error that says why, and leaves no child") {
  child_processes children;
  const auto missing = children.start({"worker", {"/nowhere/perdura-worker"}, {}, {}});
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.failure().message ==
        "cannot start worker (/nowhere/perdura-worker): No such file or directory");
  CHECK_FALSE(children.start({"worker", {}, {}, {}}).has_value());
  CHECK_FALSE(children.start({"worker", {"/"}, {}, {}}).has_value());
  child_spec no_folder = shell("exit 0");
  no_folder.output = "/nowhere/log";
  CHECK(children.start(no_folder).failure().message.find("/nowhere/log") != std::string::npos);
  CHECK(children.size() == 0);
  CHECK(::waitpid(-1, nullptr, WNOHANG) == -1);
}

TEST_CASE("several children are told apart") {
  child_processes children;
  const auto sleeper = children.start({"sleeper", {"/bin/sleep", "1000"}, {}, {}});
  const auto quick = children.start(shell("exit 7"));
  REQUIRE((sleeper && quick));
  const auto ended = children.wait(patience);
  REQUIRE(ended.size() == 1);
  CHECK(ended[0].child == *quick);
  CHECK(ended[0].code == 7);
  CHECK(children.pid_of(*quick) == 0);
  CHECK(children.pid_of(*sleeper) > 0);
  CHECK(children.kill(*sleeper).has_value());
  CHECK(children.wait(patience).at(0).child == *sleeper);
  CHECK(children.kill(*sleeper).failure().code == errc::not_found);
  CHECK(children.terminate(*sleeper, 1ms).failure().code == errc::not_found);
}

TEST_CASE("a child that obeys SIGTERM is not killed") {
  temporary_folder folder;
  child_spec spec = shell("trap 'exit 5' TERM; echo ready; while true; do sleep 0.01; done");
  spec.output = folder.path / "log";
  child_processes children;
  const auto child = children.start(spec);
  REQUIRE(child.has_value());
  wait_for_text(spec.output);
  REQUIRE(children.terminate(*child, patience).has_value());
  CHECK(children.wait(patience).at(0).words == "exited with code 5");
}

TEST_CASE("a child that does not obey SIGTERM is killed when the grace is over") {
  temporary_folder folder;
  child_spec spec = shell("trap '' TERM; echo ready; while true; do sleep 0.01; done");
  spec.output = folder.path / "log";
  child_processes children;
  const auto child = children.start(spec);
  REQUIRE(child.has_value());
  wait_for_text(spec.output);
  REQUIRE(children.terminate(*child, 20ms).has_value());
  CHECK(children.wait(patience).at(0).words == "was killed by SIGKILL");
}

TEST_CASE("a stopped child ends too") {
  temporary_folder folder;
  child_spec spec = shell("trap 'exit 5' TERM; echo ready; while true; do sleep 0.01; done");
  spec.output = folder.path / "log";
  child_processes children;
  const auto child = children.start(spec);
  REQUIRE(child.has_value());
  wait_for_text(spec.output);
  ::kill(children.pid_of(*child), SIGSTOP);
  REQUIRE(children.terminate(*child, 20ms).has_value());
  CHECK(children.wait(patience).at(0).signal == SIGKILL);
}

TEST_CASE("waiting ends by itself, and when woken") {
  child_processes children;
  REQUIRE(children.start({"sleeper", {"/bin/sleep", "1000"}, {}, {}}).has_value());
  CHECK(children.wait(1ms).empty());
  CHECK(children.wait(0ms).empty());
  std::thread other([&] { children.wake(); });
  CHECK(children.wait(std::chrono::hours(1)).empty());
  other.join();
}

TEST_CASE("what a child started goes with it") {
  temporary_folder folder;
  child_spec spec = shell("sleep 1000 & echo $!");
  spec.output = folder.path / "log";
  child_processes children;
  REQUIRE(children.start(spec).has_value());
  CHECK(children.wait(patience).at(0).code == 0);
  CHECK(ends(std::stoi(text_of(spec.output))));
}

TEST_CASE("children end with the object that started them") {
  pid_t pid = 0;
  {
    child_processes children;
    pid = children.pid_of(*children.start({"sleeper", {"/bin/sleep", "1000"}, {}, {}}));
  }
  CHECK(::kill(pid, 0) == -1);
}

TEST_CASE("children end when the process that started them is killed") {
  int pipe_ends[2];
  REQUIRE(::pipe(pipe_ends) == 0);
  const pid_t agent = ::fork();
  if (agent == 0) {
    child_processes children;
    const auto child = children.start({"sleeper", {"/bin/sleep", "1000"}, {}, {}});
    const pid_t pid = child ? children.pid_of(*child) : 0;
    [[maybe_unused]] const auto written = ::write(pipe_ends[1], &pid, sizeof pid);
    while (true) ::pause();
  }
  pid_t pid = 0;
  REQUIRE(::read(pipe_ends[0], &pid, sizeof pid) == sizeof pid);
  REQUIRE(pid > 0);
  CHECK(::kill(pid, 0) == 0);
  ::kill(agent, SIGKILL);
  ::waitpid(agent, nullptr, 0);
  CHECK(ends(pid));
  ::close(pipe_ends[0]);
  ::close(pipe_ends[1]);
}
