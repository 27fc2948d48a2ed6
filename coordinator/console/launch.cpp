#include "coordinator/console/launch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace perdura::console {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t output_bytes_max = 64U << 20;

std::string read_all(int descriptor) {
  std::string all;
  std::array<char, 65536> some{};
  for (;;) {
    const auto n = read(descriptor, some.data(), some.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || all.size() > output_bytes_max) return all;
    all.append(some.data(), static_cast<std::size_t>(n));
  }
}

// Its last line says why; as JSON or as text.
std::string reason_in(const std::string& said) {
  const auto end = said.find_last_not_of("\n ");
  if (end == std::string::npos) return "it said nothing";
  const auto begin = said.rfind('\n', end);
  return said.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

}  // namespace

result<std::string> output_of(const fs::path& program, const std::vector<std::string>& arguments) {
  const std::unique_ptr<FILE, int (*)(FILE*)> errors(std::tmpfile(), std::fclose);
  std::array<int, 2> pipe_ends{};
  if (!errors || pipe(pipe_ends.data()) != 0)
    return error{errc::io, "cannot start " + program.string() + ": " + std::strerror(errno)};
  const auto child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDOUT_FILENO);
    dup2(fileno(errors.get()), STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    const auto why = become(program, arguments);
    std::fprintf(stderr, "%s\n", why.message.c_str());
    _exit(127);
  }
  close(pipe_ends[1]);
  auto printed = child < 0 ? std::string() : read_all(pipe_ends[0]);
  close(pipe_ends[0]);
  if (child < 0) return error{errc::io, "cannot start " + program.string() + ": " + std::strerror(errno)};
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return printed;
  std::rewind(errors.get());
  lseek(fileno(errors.get()), 0, SEEK_SET);
  return error{errc::refused,
               program.filename().string() + " failed: " + reason_in(read_all(fileno(errors.get())))};
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
