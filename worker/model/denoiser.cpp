#include "worker/model/denoiser.hpp"

#include "worker/model/dit.hpp"

namespace perdura::worker {

result<data_shape> shape_of(const data_config& data) {
  if (data.kind == "fashion-mnist") return data_shape{{1, 28, 28}, 10};
  return error{errc::invalid_argument,
               "data.kind = \"" + data.kind + "\": known kinds are \"fashion-mnist\""};
}

std::vector<stage_span> spans_of(const std::vector<parameter>& parameters) {
  std::vector<stage_span> spans;
  for (const auto& p : parameters) {
    if (p.stage == spans.size()) spans.push_back({p.first, 0});
    spans[p.stage].count += p.count;
  }
  return spans;
}

double loss_gradient(denoiser& model, const slot_rows& rows, slot_values& values, float* gradient) {
  const auto spans = spans_of(model.parameters());
  for (std::uint32_t stage = 0; stage < model.stages(); ++stage) model.forward_stage(stage, rows, values);
  const double loss = model.loss(rows, values);
  for (std::uint32_t stage = model.stages(); stage-- > 0;)
    model.backward_stage(stage, rows, values, gradient + spans[stage].first);
  return loss;
}

namespace {

// What kernels/CMakeLists.txt compiles the products for.
bool cpu_runs_the_kernels() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return true;
#endif
}

}  // namespace

result<std::unique_ptr<denoiser>> make_denoiser(const job_config& job) {
  const auto data = shape_of(job.data);
  if (!data) return data.failure();
  if (job.model.kind == "dit") {
    if (!cpu_runs_the_kernels()) {
      return error{errc::unavailable,
                   "this CPU has no AVX2 and FMA, for which the model's kernels are compiled"};
    }
    const auto size = dit_size_of(job.model, *data);
    if (!size) return size.failure();
    return std::unique_ptr<denoiser>(std::make_unique<dit>(*size, job.model.activation_checkpointing));
  }
  return error{errc::invalid_argument, "model.kind = \"" + job.model.kind + "\": known kinds are \"dit\""};
}

}  // namespace perdura::worker
