// A denoiser: the network that a job trains and samples from. The trainer and the sampler know this interface
// alone, so a further model is one class and one line in make_denoiser.
//
// All its parameters lie in one flat vector, in the order of the stages that run them: embedding, blocks,
// head. A pass runs stage by stage and needs the parameters of no other stage meanwhile, so that a stage's
// can be gathered ahead and freed behind; several slots may go through the stages side by side. A denoiser is
// one lane: it keeps a workspace and must not be called by two threads at once. Several may be bound to the
// same parameters. Results are a function of the arguments and the parameters alone, for a given batch size.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"
#include "kernels/bf16.hpp"

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

// A stage's parameters: [first, first + count) of the flat vector.
struct stage_span {
  std::uint64_t first{};
  std::uint64_t count{};
};
std::vector<stage_span> spans_of(const std::vector<parameter>& parameters);

// One slot's batch; the arrays outlive its passes. noisy, target: float32[batch, channels, height, width];
// time: float32[batch] in [0, 1]; label: [batch].
struct slot_rows {
  const float* noisy;
  const float* time;
  const std::int64_t* label;
  const float* target;
  std::int64_t batch;
};

// What a slot keeps from stage to stage of its two passes; used again for the next slot.
class slot_values {
 public:
  virtual ~slot_values() = default;
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

  // Parameters are views into `flat` ([parameter_count()]) from now on; they are read at each call. Bound to
  // bfloat16, the operands of all matrix products are rounded to it; sums and all else are fp32.
  virtual void bind(const float* flat) = 0;
  virtual void bind(const kernels::bf16* flat) = 0;
  // Writes the initial parameters [first, first + to.size()): a function of the seed and the model's
  // configuration.
  virtual void initialise(std::uint64_t seed, std::uint64_t first, std::span<float> to) const = 0;

  // Forward passes run the stages in order, backward passes in reverse, with loss() between them.
  virtual std::unique_ptr<slot_values> make_slot() const = 0;
  virtual void forward_stage(std::uint32_t stage, const slot_rows& rows, slot_values& values) = 0;
  // The sum over the samples of their mean squared error against the target.
  virtual double loss(const slot_rows& rows, slot_values& values) = 0;
  // Writes (does not add) the loss's derivative by the stage's parameters: float32[count of the stage].
  virtual void backward_stage(std::uint32_t stage, const slot_rows& rows, slot_values& values,
                              float* gradient) = 0;
  // Of one slot's values, and of what is shared by all slots.
  virtual std::uint64_t slot_bytes(std::int64_t batch) const = 0;
  virtual std::uint64_t workspace_bytes(std::int64_t batch) const = 0;

  // The prediction for each row, float32[batch, channels, height, width]; time [batch] float32, label [batch]
  // int64.
  virtual at::Tensor forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) = 0;
};

// Both passes through all stages: the loss, and its derivative by every parameter in `gradient`,
// float32[parameter_count()].
double loss_gradient(denoiser& model, const slot_rows& rows, slot_values& values, float* gradient);

// Errors: invalid_argument for an unknown kind (the message lists what exists) or sizes that do not fit each
// other.
result<std::unique_ptr<denoiser>> make_denoiser(const job_config& job);

}  // namespace perdura::worker
