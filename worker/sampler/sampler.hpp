// Sampling: from a seed and a label to a picture. Work is done in steps, not requests: each step's batch is
// formed anew from the rows of whatever requests are on their way, each with its own time, label and number
// of steps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/sampler/image.hpp"
#include "worker/sampler/solver.hpp"

namespace perdura::worker {

inline constexpr float guidance_max = 100.0F;

struct sample_request {
  std::int64_t label{};  // 0..classes; classes() itself: of no class
  std::uint64_t seed{};  // the noise is a function of it alone
  std::uint32_t steps = 40;
  float guidance =
      2.0F;  // classifier-free (Ho and Salimans, 2022): 1 follows the label as learnt, more exaggerates it
  std::string solver = "euler";
};

// One request on its way.
class sampling {
 public:
  // Errors: invalid_argument, naming the field and what is allowed.
  static result<sampling> start(const sample_request& request, const denoiser& model);

  bool is_finished() const { return solver_->is_finished(); }
  // Rows it needs in the next batch: two under guidance, with and without the label.
  std::int64_t rows() const { return is_guided_ ? 2 : 1; }
  // Writes rows() images, times and labels.
  void write_rows(float* noisy, float* time, std::int64_t* label) const;
  // Takes the predictions of these rows. Errors: internal, where the sample is not finite any more.
  result<void> advance(std::span<const float> predictions);
  // The picture so far.
  image picture() const { return to_image(shape_, solver_->latent()); }

 private:
  sampling(const sample_request& request, const denoiser& model, std::unique_ptr<solver> s);

  sample_request request_;
  image_shape shape_;
  std::int64_t null_label_;
  bool is_guided_;
  std::unique_ptr<solver> solver_;
};

// All requests side by side until each is done; pictures in the order of the requests.
result<std::vector<image>> sample(denoiser& model, std::span<const sample_request> requests);

}  // namespace perdura::worker
