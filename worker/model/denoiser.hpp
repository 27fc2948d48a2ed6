// A denoiser: the network that a job trains and samples from. The trainer and the sampler know this interface
// alone, so a further model is one class and one line in make_denoiser.
//
// All its parameters lie in one flat float32 vector, in the order of the stages that run them: embedding,
// blocks, head. A denoiser is one lane: it keeps a workspace and must not be called by two threads at once.
// Several may be bound to the same parameters. Results are a function of the arguments and the parameters
// alone, for a given batch size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"

namespace at {
class Tensor;
}

namespace perdura::worker {

struct image_shape {
  std::int64_t channels{};
  std::int64_t height{};
  std::int64_t width{};
  std::int64_t count() const { return channels * height * width; }
  bool operator==(const image_shape&) const = default;
};

// What a model must know of the data it is for.
struct data_shape {
  image_shape image;
  std::int64_t classes{};
};

// Errors: invalid_argument for an unknown kind of data; the message lists the known ones.
result<data_shape> shape_of(const data_config& data);

struct parameter {
  std::string name;
  std::vector<std::int64_t> shape;  // row-major
  std::uint64_t first{};            // offset in the flat vector
  std::uint64_t count{};
  std::uint32_t stage{};
};

// Told around each stage of every pass (backward passes run the stages in reverse), so that a stage's
// parameters can be gathered ahead and freed behind.
class stage_listener {
 public:
  virtual ~stage_listener() = default;
  virtual void before_stage(std::uint32_t stage) = 0;
  virtual void after_stage(std::uint32_t stage) = 0;
};

class denoiser {
 public:
  virtual ~denoiser() = default;

  // In flat order, without gaps; a stage's parameters are adjacent.
  virtual const std::vector<parameter>& parameters() const = 0;
  virtual std::uint64_t parameter_count() const = 0;
  virtual std::uint32_t stages() const = 0;
  virtual image_shape image() const = 0;
  virtual std::int64_t classes() const = 0;
  // The label that stands for "no class": classes() itself, so labels are 0..classes().
  std::int64_t null_class() const { return classes(); }

  // Parameters are views into `flat` (float32[parameter_count()]) from now on; they are read at each call.
  virtual void bind(const float* flat) = 0;
  // Writes the initial parameters: a function of the seed and the model's configuration.
  virtual void initialise(std::uint64_t seed, float* flat) const = 0;
  virtual void set_listener(stage_listener* listener) = 0;

  // The sum over the samples of their mean squared error against `target`. Writes (does not add) its
  // derivative by every parameter to `gradient`, float32[parameter_count()]. noisy, target: float32[batch,
  // channels, height, width]; time: float32[batch] in [0, 1]; label: [batch].
  virtual double loss_gradient(const float* noisy, const float* time, const std::int64_t* label,
                               const float* target, std::int64_t batch, float* gradient) = 0;
  // The prediction for each row, float32[batch, channels, height, width]; time [batch] float32, label [batch]
  // int64.
  virtual at::Tensor forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) = 0;
};

// Errors: invalid_argument for an unknown kind (the message lists what exists) or sizes that do not fit each
// other.
result<std::unique_ptr<denoiser>> make_denoiser(const job_config& job);

}  // namespace perdura::worker
