// A solver walks one sample from noise (time 1) to an image (time 0) along the velocities that a model
// predicts. It is the whole state of a request on its way: small, copied to go on elsewhere, advanced one
// prediction at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/base/result.hpp"

namespace perdura::worker {

inline constexpr std::uint32_t solver_steps_max = 1000;

class solver {
 public:
  virtual ~solver() = default;
  virtual bool is_finished() const = 0;
  // What the model is to be asked next: the sample as it is, and its time. Not meaningful once finished.
  virtual std::span<const float> latent() const = 0;
  virtual float time() const = 0;
  // `velocity` is the derivative of the sample by time at latent() and time(). Precondition: not finished.
  virtual void advance(std::span<const float> velocity) = 0;
  virtual std::unique_ptr<solver> clone() const = 0;
};

// Errors: invalid_argument for an unknown kind (the message lists what exists) or a number of steps out of
// range.
result<std::unique_ptr<solver>> make_solver(const std::string& kind, std::uint32_t steps,
                                            std::vector<float> noise);

}  // namespace perdura::worker
