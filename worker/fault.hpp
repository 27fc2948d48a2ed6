// Faults on demand, for the chaos tests: "kill:STEP:PHASE" or "stop:STEP:PHASE" makes the process raise
// SIGKILL or SIGSTOP on itself when it first gets there.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

enum class fault_phase : std::uint8_t { compute, exchange, gather, vote, verdict, apply };

class fault {
 public:
  fault() = default;
  // Errors: invalid_argument, with what is allowed.
  static result<fault> parse(const std::string& text);
  void reached(step_number step, fault_phase phase) {
    if (signal_ == 0 || step != step_ || phase != phase_) return;
    const int s = signal_;
    signal_ = 0;
    std::raise(s);
  }

 private:
  int signal_ = 0;
  step_number step_;
  fault_phase phase_{};
};

}  // namespace perdura::worker
