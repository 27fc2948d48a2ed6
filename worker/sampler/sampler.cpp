#include "worker/sampler/sampler.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/philox.hpp"
#include "worker/model/torch.hpp"

namespace perdura::worker {
namespace {

error not_allowed(const std::string& field, const std::string& value, const std::string& allowed) {
  return {errc::invalid_argument, field + " = " + value + ": must be in " + allowed};
}

// The rows of one step's batch.
struct step_batch {
  explicit step_batch(const image_shape& shape, std::int64_t rows)
      : noisy(at::empty({rows, shape.channels, shape.height, shape.width})),
        time(at::empty({rows})),
        label(at::empty({rows}, at::kLong)) {}
  at::Tensor noisy, time, label;
};

// One step of all that are unfinished.
result<void> advance_all(denoiser& model, std::vector<sampling>& under_way) {
  std::int64_t rows = 0;
  for (const sampling& s : under_way) rows += s.is_finished() ? 0 : s.rows();
  const std::int64_t count = model.image().count();
  step_batch batch(model.image(), rows);
  std::int64_t row = 0;
  for (const sampling& s : under_way) {
    if (s.is_finished()) continue;
    s.write_rows(batch.noisy.mutable_data_ptr<float>() + row * count,
                 batch.time.mutable_data_ptr<float>() + row,
                 batch.label.mutable_data_ptr<std::int64_t>() + row);
    row += s.rows();
  }
  const at::Tensor predicted = model.forward(batch.noisy, batch.time, batch.label);
  row = 0;
  for (sampling& s : under_way) {
    if (s.is_finished()) continue;
    const auto advanced = s.advance(
        {predicted.const_data_ptr<float>() + row * count, static_cast<std::size_t>(s.rows() * count)});
    if (!advanced) return advanced.failure();
    row += s.rows();
  }
  return {};
}

}  // namespace

sampling::sampling(const sample_request& request, const denoiser& model, std::unique_ptr<solver> s)
    : request_(request),
      shape_(model.image()),
      null_label_(model.null_class()),
      is_guided_(request.guidance != 1.0F && request.label != model.null_class()),
      solver_(std::move(s)) {}

result<sampling> sampling::start(const sample_request& request, const denoiser& model) {
  if (request.label < 0 || request.label > model.null_class()) {
    return not_allowed("class", std::to_string(request.label),
                       "0.." + std::to_string(model.classes() - 1) + ", or " +
                           std::to_string(model.null_class()) + " for none");
  }
  if (!(request.guidance >= 0.0F && request.guidance <= guidance_max)) {
    return not_allowed("guidance", std::to_string(request.guidance),
                       "0.." + std::to_string(static_cast<int>(guidance_max)));
  }
  std::vector<float> noise(static_cast<std::size_t>(model.image().count()));
  kernels::fill_normal({request.seed, 0, 0, kernels::random_stream::latent}, noise);
  auto s = make_solver(request.solver, request.steps, std::move(noise));
  if (!s) return s.failure();
  return sampling(request, model, std::move(*s));
}

void sampling::write_rows(float* noisy, float* time, std::int64_t* label) const {
  const auto latent = solver_->latent();
  for (std::int64_t row = 0; row < rows(); ++row) {
    noisy = std::copy(latent.begin(), latent.end(), noisy);
    time[row] = solver_->time();
    label[row] = row == 0 ? request_.label : null_label_;
  }
}

result<void> sampling::advance(std::span<const float> predictions) {
  const std::size_t count = solver_->latent().size();
  PERDURA_CHECK(predictions.size() == count * static_cast<std::size_t>(rows()), "a prediction for each row");
  const float at = solver_->time();
  if (is_guided_) {
    std::vector<float> velocity(count);
    for (std::size_t i = 0; i < count; ++i) {
      const float free = predictions[count + i];
      velocity[i] = free + request_.guidance * (predictions[i] - free);
    }
    solver_->advance(velocity);
  } else {
    solver_->advance(predictions);
  }
  const auto latent = solver_->latent();
  if (std::all_of(latent.begin(), latent.end(), [](float v) { return std::isfinite(v); })) return {};
  return error{errc::internal, "sampling class " + std::to_string(request_.label) + " with seed " +
                                   std::to_string(request_.seed) +
                                   " gave a value that is not finite at time " + std::to_string(at) +
                                   ": the model's parameters are damaged, or guidance is too high"};
}

result<std::vector<image>> sample(denoiser& model, std::span<const sample_request> requests) {
  std::vector<sampling> under_way;
  for (const sample_request& request : requests) {
    auto started = sampling::start(request, model);
    if (!started) return started.failure();
    under_way.push_back(std::move(*started));
  }
  const auto is_finished = [](const sampling& s) { return s.is_finished(); };
  while (!std::all_of(under_way.begin(), under_way.end(), is_finished)) {
    const auto advanced = advance_all(model, under_way);
    if (!advanced) return advanced.failure();
  }
  std::vector<image> pictures;
  for (const sampling& s : under_way) pictures.push_back(s.picture());
  return pictures;
}

}  // namespace perdura::worker
