// What the tests of the command line share: a folder that goes away, and the real program in a process of its
// own.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

namespace perdura::console {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

struct temporary_folder {
  temporary_folder() {
    auto pattern = (fs::temp_directory_path() / "perdura-console-XXXXXX").string();
    path = mkdtemp(pattern.data());
  }
  ~temporary_folder() { fs::remove_all(path); }
  fs::path path;
};

inline std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void write_text(const fs::path& file, const std::string& text, fs::perms mode = fs::perms::owner_all) {
  std::ofstream(file) << text;
  fs::permissions(file, mode);
}

template <class Condition>
bool eventually(Condition condition) {
  for (int i = 0; i < 1000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

struct ended {
  int code = -1;
  std::string out;
  std::string err;
};

// The real program, in a process of its own.
class running {
 public:
  running(const fs::path& folder, const std::vector<std::string>& words, const std::string& input = "",
          const std::string& program = PERDURA_PROGRAM)
      : folder_(folder) {
    std::ofstream(folder / "in") << input;
    std::vector<std::string> all{program};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> pointers;
    for (auto& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      dup2(open((folder / "in").c_str(), O_RDONLY), 0);
      dup2(open((folder / "out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open((folder / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      execv(program.c_str(), pointers.data());
      _exit(99);
    }
  }
  ~running() {
    if (!is_done_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }
  void signal(int number) const { kill(pid_, number); }
  std::string out() const { return text_of(folder_ / "out"); }
  ended wait() {
    int status = 0;
    REQUIRE(eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; }));
    is_done_ = true;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(),
            text_of(folder_ / "err")};
  }

 private:
  fs::path folder_;
  pid_t pid_ = -1;
  bool is_done_ = false;
};

}  // namespace perdura::console
