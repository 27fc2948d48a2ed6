#include "chaos/proc/network.hpp"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace perdura::chaos {
namespace {

constexpr milliseconds tool_limit{20000};
constexpr const char* own_namespace = "/proc/thread-self/ns/net";
constexpr const char* bridge = "br0";
constexpr int machines_max = 250;

std::string tool(const std::string& name) {
  for (const char* folder : {"/usr/sbin/", "/sbin/", "/usr/bin/", "/bin/"})
    if (auto file = folder + name; ::access(file.c_str(), X_OK) == 0) return file;
  throw failure(name + " is not installed (Debian: iproute2)");
}

void enter(int space) {
  if (::setns(space, CLONE_NEWNET) != 0)
    throw failure(std::string("cannot enter a network namespace: ") + std::strerror(errno));
}

int open_own() {
  const int fd = ::open(own_namespace, O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw failure(std::string("cannot open ") + own_namespace + ": " + std::strerror(errno));
  return fd;
}

void ip(int space, const std::vector<std::string>& arguments) { run_program(tool("ip"), arguments, space); }

}  // namespace

void run_program(const std::string& program, const std::vector<std::string>& arguments, int space) {
  const temporary_folder folder("perdura-tool");
  const auto output = folder.path() / "output";
  process tool(launch{.program = program, .arguments = arguments, .output = output, .network = space});
  const auto code = tool.wait(tool_limit);
  if (code == std::optional(0)) return;
  std::string words = program;
  for (const auto& a : arguments) words += " " + a;
  throw failure(words + (code ? " exited with " + std::to_string(*code) : " does not end") + ":\n" +
                tail(output, 20));
}

network_namespace::network_namespace() {
  const int before = open_own();
  const bool made = ::unshare(CLONE_NEWNET) == 0;
  const int why = errno;
  if (made) {
    descriptor_ = open_own();
    enter(before);
  }
  ::close(before);
  if (!made) throw failure(std::string("cannot make a network namespace: ") + std::strerror(why));
}

network_namespace::~network_namespace() { ::close(descriptor_); }

std::string network_namespace::path() const {
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(descriptor_);
}

std::string network::why_not() {
  try {
    network trial;
    trial.add("a");
    trial.add("b");
    trial.cut("a", "b");
    trial.limit("a", "20mbit");
  } catch (const failure& e) { return e.what(); }
  return {};
}

network::network() : before_(open_own()) {
  try {
    ip(hub_.descriptor(), {"link", "set", "lo", "up"});
    ip(hub_.descriptor(), {"link", "add", bridge, "type", "bridge"});
    ip(hub_.descriptor(), {"address", "add", "192.0.2.1/24", "dev", bridge});
    ip(hub_.descriptor(), {"link", "set", bridge, "up"});
    enter(hub_.descriptor());
  } catch (...) {
    ::close(before_);
    throw;
  }
}

network::~network() {
  ::setns(before_, CLONE_NEWNET);
  ::close(before_);
}

std::string network::add(const std::string& machine) {
  const auto number = static_cast<int>(members_.size()) + 2;
  if (members_.contains(machine) || number > machines_max) throw failure("no place for machine " + machine);
  member m{"192.0.2." + std::to_string(number), "cable" + std::to_string(number),
           std::make_unique<network_namespace>()};
  const int space = m.space->descriptor();
  ip(hub_.descriptor(),
     {"link", "add", m.cable, "type", "veth", "peer", "name", "eth0", "netns", m.space->path()});
  ip(hub_.descriptor(), {"link", "set", m.cable, "master", bridge, "up"});
  ip(space, {"link", "set", "lo", "up"});
  ip(space, {"address", "add", m.address + "/24", "dev", "eth0"});
  ip(space, {"link", "set", "eth0", "up"});
  return members_.emplace(machine, std::move(m)).first->second.address;
}

const network::member& network::at(const std::string& machine) const {
  const auto found = members_.find(machine);
  if (found == members_.end()) throw failure("there is no machine " + machine);
  return found->second;
}

void network::cut_one_way(const std::string& from, const std::string& to) {
  ip(namespace_of(from), {"route", "replace", "blackhole", address(to) + "/32"});
}

void network::cut(const std::string& a, const std::string& b) {
  cut_one_way(a, b);
  cut_one_way(b, a);
}

void network::mend(const std::string& a, const std::string& b) {
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    // Of a cut one way there is no second route; what counts is that none is left.
    try {
      ip(namespace_of(from), {"route", "delete", "blackhole", address(to) + "/32"});
    } catch (const failure&) {}
  }
}

void network::unplug(const std::string& machine) {
  ip(hub_.descriptor(), {"link", "set", at(machine).cable, "down"});
}

void network::plug(const std::string& machine) {
  ip(hub_.descriptor(), {"link", "set", at(machine).cable, "up"});
}

void network::limit(const std::string& machine, const std::string& rate) {
  run_program(
      tool("tc"),
      {"qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "32kbit", "latency", "400ms"},
      namespace_of(machine));
}

}  // namespace perdura::chaos
