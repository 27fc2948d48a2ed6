// Machines on a network of their own, in one: network namespaces, each with an address, on a bridge in one
// more. What holds them is open descriptors, so that all of it is gone when the process that made it is,
// however it ends. Needs root and iproute2.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chaos/proc/process.hpp"

namespace perdura::chaos {

// A network namespace of its own. Programs enter it with launch::network.
class network_namespace {
 public:
  network_namespace();
  network_namespace(const network_namespace&) = delete;
  network_namespace& operator=(const network_namespace&) = delete;
  ~network_namespace();
  int descriptor() const { return descriptor_; }
  std::string path() const;  // good while this process lives

 private:
  int descriptor_ = -1;
};

class network {
 public:
  // Empty, or why this machine can make none: to be told instead of a test.
  static std::string why_not();

  // Takes the calling thread, and what it starts, onto the network's bridge, until it is destroyed.
  network();
  ~network();
  network(const network&) = delete;
  network& operator=(const network&) = delete;

  // "192.0.2.2", ...
  std::string add(const std::string& machine);
  const std::string& address(const std::string& machine) const { return at(machine).address; }
  int namespace_of(const std::string& machine) const { return at(machine).space->descriptor(); }

  // What `from` sends to `to` vanishes, without a word to either.
  void cut_one_way(const std::string& from, const std::string& to);
  void cut(const std::string& a, const std::string& b);
  void mend(const std::string& a, const std::string& b);
  // The machine's cable.
  void unplug(const std::string& machine);
  void plug(const std::string& machine);
  // What leaves the machine, as tc writes rates: "20mbit".
  void limit(const std::string& machine, const std::string& rate);

 private:
  struct member {
    std::string address;
    std::string cable;  // its end at the bridge
    std::unique_ptr<network_namespace> space;
  };
  const member& at(const std::string& machine) const;

  int before_ = -1;  // where the thread comes from
  network_namespace hub_;
  std::map<std::string, member> members_;
};

// Runs a program to its end. Throws failure with what it wrote unless it exits with 0. `space`: see
// launch::network.
void run_program(const std::string& program, const std::vector<std::string>& arguments, int space = -1);

}  // namespace perdura::chaos
