// A TCP proxy that is as bad as a long or lossy line, for machines whose kernel has no netem. TCP loses no
// bytes: to its users a lost packet is a pause, after which all that waited comes at once.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/base/control.hpp"

namespace perdura::chaos {

struct line {
  std::chrono::milliseconds delay{0};    // each way
  double loss = 0;                       // part of all reads that wait for a retransmission
  std::chrono::milliseconds again{200};  // which takes so long
  std::uint64_t seed = 1;
};

class proxy {
 public:
  // Listens on a free port of `host`, in the network that the calling thread is in. Throws failure.
  proxy(const endpoint& target, const line& quality, const std::string& host = "127.0.0.1");
  ~proxy();
  proxy(const proxy&) = delete;
  proxy& operator=(const proxy&) = delete;

  endpoint local() const;
  // All connections end; new ones are taken.
  void break_all();
  std::uint64_t lost() const;         // reads that had to wait
  std::uint64_t connections() const;  // so far

 private:
  struct state;
  std::shared_ptr<state> state_;
};

}  // namespace perdura::chaos
