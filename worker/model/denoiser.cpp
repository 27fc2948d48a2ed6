#include "worker/model/denoiser.hpp"

#include "worker/model/dit.hpp"

namespace perdura::worker {

result<data_shape> shape_of(const data_config& data) {
  if (data.kind == "fashion-mnist") return data_shape{{1, 28, 28}, 10};
  return error{errc::invalid_argument,
               "data.kind = \"" + data.kind + "\": known kinds are \"fashion-mnist\""};
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
    return std::unique_ptr<denoiser>(std::make_unique<dit>(*size));
  }
  return error{errc::invalid_argument, "model.kind = \"" + job.model.kind + "\": known kinds are \"dit\""};
}

}  // namespace perdura::worker
