#include "worker/sampler/solver.hpp"

namespace perdura::worker {
namespace {

// Explicit Euler on a uniform grid: for rectified flow, whose paths are nearly straight, a good deal.
class euler final : public solver {
 public:
  euler(std::uint32_t steps, std::vector<float> noise) : steps_(steps), latent_(std::move(noise)) {}

  bool is_finished() const override { return done_ == steps_; }
  std::span<const float> latent() const override { return latent_; }
  float time() const override { return time_after(done_); }
  void advance(std::span<const float> velocity) override {
    PERDURA_CHECK(!is_finished() && velocity.size() == latent_.size(),
                  "a velocity for each value of an unfinished sample");
    const float step = time_after(done_) - time_after(done_ + 1);
    for (std::size_t i = 0; i < latent_.size(); ++i) latent_[i] -= step * velocity[i];
    ++done_;
  }
  std::unique_ptr<solver> clone() const override { return std::make_unique<euler>(*this); }

 private:
  float time_after(std::uint32_t done) const {
    return static_cast<float>(steps_ - done) / static_cast<float>(steps_);
  }

  std::uint32_t steps_;
  std::uint32_t done_ = 0;
  std::vector<float> latent_;
};

}  // namespace

result<std::unique_ptr<solver>> make_solver(const std::string& kind, std::uint32_t steps,
                                            std::vector<float> noise) {
  if (steps == 0 || steps > solver_steps_max) {
    return error{errc::invalid_argument,
                 "steps = " + std::to_string(steps) + ": must be in 1.." + std::to_string(solver_steps_max)};
  }
  if (kind == "euler") return std::unique_ptr<solver>(std::make_unique<euler>(steps, std::move(noise)));
  return error{errc::invalid_argument, "solver = \"" + kind + "\": known solvers are \"euler\""};
}

}  // namespace perdura::worker
