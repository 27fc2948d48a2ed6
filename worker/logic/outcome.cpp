#include "worker/logic/outcome.hpp"

#include <cmath>

namespace perdura::worker {

namespace {

// The canonical tree again, over tiles: halves, then halves of halves.
double tree_norm2(std::span<const vote_part> parts) {
  if (parts.empty()) return 0;
  if (parts.size() == 1) return parts.front().norm2;
  const auto half = parts.size() / 2;
  return tree_norm2(parts.first(half)) + tree_norm2(parts.subspan(half));
}

}  // namespace

float learning_rate(const optimizer_config& optimizer, std::uint64_t steps, std::uint64_t optimizer_time) {
  const double t = static_cast<double>(optimizer_time);
  double factor = 1;
  if (optimizer.warmup_steps > 0 && optimizer_time < optimizer.warmup_steps)
    factor = t / static_cast<double>(optimizer.warmup_steps);
  const double decay_steps = optimizer.decay_fraction * static_cast<double>(steps);
  const double left = static_cast<double>(steps) + 1 - t;
  if (decay_steps > 0 && left < decay_steps) factor = std::fmin(factor, std::fmax(left, 0) / decay_steps);
  return static_cast<float>(optimizer.learning_rate * factor);
}

step_outcome conclude(const job_config& job, std::span<const vote_part> parts, const step_outcome& last) {
  step_outcome out;
  bool finite = true;
  for (const auto& p : parts) finite = finite && p.finite;
  out.gradient_norm = std::sqrt(tree_norm2(parts));
  out.loss = parts.empty() ? 0 : parts.front().loss;
  out.skipped = !finite || !std::isfinite(out.gradient_norm);
  out.optimizer_time = last.optimizer_time + (out.skipped ? 0 : 1);
  out.skips_in_a_row = out.skipped ? last.skips_in_a_row + 1 : 0;
  out.learning_rate = learning_rate(job.optimizer, job.steps, out.optimizer_time);
  const double limit = job.optimizer.clip_norm;
  out.clip_scale =
      limit > 0 && out.gradient_norm > limit ? static_cast<float>(limit / out.gradient_norm) : 1.0F;
  return out;
}

}  // namespace perdura::worker
