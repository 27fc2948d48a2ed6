// A coordinator that writes down what it is told, and a perdura-node whose workers are scripts.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/runtime/harden.hpp"
#include "actors/runtime/system.hpp"
#include "actors/wire/interfaces.hpp"

namespace perdura::test {

constexpr std::chrono::seconds patience{30};  // that only a failure takes

inline void eventually(const char* what, const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!is_so()) {
    REQUIRE_MESSAGE(std::chrono::steady_clock::now() < end, what);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

struct told {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<node_hello> hellos;
  std::vector<node_heartbeat> heartbeats;
  std::vector<child_exit> exits;
  std::vector<node_notice> notices;
  wire::node_control_actor node;
  result<welcome> answer = welcome{term_number(3), 20};

  void until(const char* what, const std::function<bool(const told&)>& is_so) {
    std::unique_lock lock(mutex);
    const bool came = changed.wait_for(lock, patience, [&] { return is_so(*this); });
    REQUIRE_MESSAGE(came, what);
  }
};

struct no_state {};
using fake_self = runtime::hardened<wire::coordinator_actor, no_state>;

inline wire::coordinator_actor::behavior_type fake_behavior(fake_self* self, told* t) {
  runtime::harden(self);
  const auto note = [t](const std::function<void()>& what) {
    const std::lock_guard lock(t->mutex);
    what();
    t->changed.notify_all();
  };
  return {[](const worker_hello&) { return welcome{}; },
          [](const worker_report&) {},
          [](const heartbeat&) {},
          [=](const node_hello& h) -> caf::result<welcome> {
            note([&] {
              t->hellos.push_back(h);
              t->node = caf::actor_cast<wire::node_control_actor>(self->current_sender());
            });
            const std::lock_guard lock(t->mutex);
            if (!t->answer) return wire::to_caf(t->answer.failure());
            return *t->answer;
          },
          [=](const node_heartbeat& h) { note([&] { t->heartbeats.push_back(h); }); },
          [=](const child_exit& e) { note([&] { t->exits.push_back(e); }); },
          [=](const node_notice& n) { note([&] { t->notices.push_back(n); }); },
          [](const challenge_request&) { return role_challenge{}; }};
}

class fake_coordinator {
 public:
  explicit fake_coordinator(result<welcome> answer = welcome{term_number(3), 20}, std::uint16_t port = 0) {
    told.answer = std::move(answer);
    actor_ = process_.system().spawn(fake_behavior, &told);
    const auto bound = runtime::publish(process_.system(), actor_, {"127.0.0.1", port});
    REQUIRE_MESSAGE(bound.has_value(), (bound ? "" : bound.failure().message));
    port_ = *bound;
  }
  ~fake_coordinator() {
    {
      const std::lock_guard lock(told.mutex);
      told.node = nullptr;
    }
    runtime::end(actor_);
  }
  std::uint16_t port() const { return port_; }
  void order(term_number term, incarnation to, decltype(node_order::order) what) {
    const std::lock_guard lock(told.mutex);
    caf::anon_send(told.node, node_order{term, to, std::move(what)});
  }

  test::told told;

 private:
  runtime::actor_process process_;
  wire::coordinator_actor actor_;
  std::uint16_t port_ = 0;
};

// One life of a worker, as its script wrote it down.
struct life {
  pid_t pid = 0;
  std::vector<std::string> words;
  std::string after(const std::string& flag) const {
    const auto at = std::find(words.begin(), words.end(), flag);
    return at == words.end() || at + 1 == words.end() ? "" : *(at + 1);
  }
  incarnation who() const { return parse_incarnation(after("--incarnation")); }
};

inline bool is_gone(pid_t pid) {
  // Zombies of a killed agent belong to whoever adopted them, who may be slow.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return true;
  return text[text.rfind(')') + 2] == 'Z';
}

class agent {
 public:
  agent(std::uint16_t port, std::vector<std::string> more = {}) {
    std::string name = (std::filesystem::temp_directory_path() / "perdura-node-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    folder = name;
    std::ofstream(folder / "worker") << "#!/bin/sh\necho output\necho $$ \"$@\" >>"
                                     << (folder / "lives").string() << "\nexec sleep 300\n";
    std::filesystem::permissions(folder / "worker", std::filesystem::perms::owner_all);
    words_ = {PERDURA_NODE,    "--join",           "127.0.0.1:" + std::to_string(port),
              "--name",        "node-1",           "--log",
              folder.string(), "--worker-program", (folder / "worker").string()};
    words_.insert(words_.end(), more.begin(), more.end());
  }
  ~agent() {
    if (pid > 0) kill_agent();
    std::error_code failed;
    std::filesystem::remove_all(folder, failed);
  }
  // Gives the flag another value.
  void change(const std::string& flag, const std::string& value) {
    *(std::find(words_.begin(), words_.end(), flag) + 1) = value;
  }
  void start() {
    std::vector<char*> argv;
    for (auto& w : words_) argv.push_back(w.data());
    argv.push_back(nullptr);
    const auto errors = (folder / "errors").string();
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::dup2(::open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
  }
  void kill_agent() {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    pid = 0;
  }
  // Its exit code; -1 if a signal ended it.
  int wait() {
    int status = 0;
    eventually("the agent ends", [&] { return ::waitpid(pid, &status, WNOHANG) == pid; });
    pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::vector<life> lives() const {
    std::vector<life> all;
    std::ifstream file(folder / "lives");
    for (std::string line; std::getline(file, line) && !file.eof();) {
      std::istringstream words(line);
      life l;
      words >> l.pid;
      for (std::string word; words >> word;) l.words.push_back(word);
      all.push_back(l);
    }
    return all;
  }
  std::vector<life> lives(std::size_t count) const {
    eventually("workers start", [&] { return lives().size() >= count; });
    return lives();
  }
  std::string text_of(const std::string& file) const {
    std::ifstream in(folder / file);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void check_all_gone() const {
    for (const auto& l : lives()) eventually("no worker is left", [&] { return is_gone(l.pid); });
  }

  std::filesystem::path folder;
  pid_t pid = 0;

 private:
  std::vector<std::string> words_;
};

}  // namespace perdura::test
