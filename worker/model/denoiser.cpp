#include "worker/model/denoiser.hpp"

#include "worker/model/dit.hpp"

namespace perdura::worker {

result<data_shape> shape_of(const data_config& data) {
  if (data.kind == "fashion-mnist") return data_shape{{1, 28, 28}, 10};
  return error{errc::invalid_argument, "data.kind = \"" + data.kind + "\": known kinds are \"fashion-mnist\""};
}

result<std::unique_ptr<denoiser>> make_denoiser(const job_config& job) {
  const auto data = shape_of(job.data);
  if (!data) return data.failure();
  if (job.model.kind == "dit") {
    const auto size = dit_size_of(job.model, *data);
    if (!size) return size.failure();
    return std::unique_ptr<denoiser>(std::make_unique<dit>(*size));
  }
  return error{errc::invalid_argument, "model.kind = \"" + job.model.kind + "\": known kinds are \"dit\""};
}

}  // namespace perdura::worker
