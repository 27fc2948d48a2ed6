#include "worker/trainer/trainer.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "actors/base/check.hpp"
#include "kernels/hash.hpp"
#include "kernels/philox.hpp"
#include "kernels/sums.hpp"
#include "worker/data/image_set.hpp"
#include "worker/data/sampling.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/slot_input.hpp"
#include "worker/trainer/state.hpp"

namespace perdura::worker {
namespace {

constexpr std::size_t idle_gradients_max = 32;  // full gradients: pending sums and the blocks of two steps
constexpr std::size_t idle_tiles_max = 256;
constexpr std::uint32_t canary_parameters =
    3;  // sample number within the canary's stream; slot_input has 0..2
constexpr float canary_scale = 0.05F;

double sum_of_losses(std::span<const tile_partial> partials) {
  std::array<std::pair<std::uint32_t, double>, kernels::slots_log2_max + 2> pending{};
  std::size_t depth = 0;
  for (const auto& p : partials) {
    pending[depth++] = {p.slots.size, p.loss};
    for (; depth > 1 && pending[depth - 1].first == pending[depth - 2].first; --depth)
      pending[depth - 2] = {2 * pending[depth - 2].first,
                            pending[depth - 2].second + pending[depth - 1].second};
  }
  return pending[0].second;
}

// Bytes off a link may lie at any address: copied only where floats could not be read in place.
class float_view {
 public:
  explicit float_view(const blob& bytes) {
    PERDURA_CHECK(bytes.size() % sizeof(float) == 0, "a blob of floats has a fraction of one");
    const std::size_t count = bytes.size() / sizeof(float);
    const float* data = reinterpret_cast<const float*>(bytes.data());
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(float) != 0) {
      copy_.resize(count);
      std::memcpy(copy_.data(), bytes.data(), bytes.size());
      data = copy_.data();
    }
    values_ = {data, count};
  }
  std::span<const float> values() const { return values_; }

 private:
  std::vector<float> copy_;
  std::span<const float> values_;
};

class one_lane_trainer final : public trainer {
 public:
  one_lane_trainer(const job_config& job, image_set data, std::unique_ptr<denoiser> model)
      : job_(job),
        data_(std::move(data)),
        draws_{.seed = job.seed,
               .data_size = data_.size(),
               .batch_size = job.batch.size,
               .label_drop = job.data.label_drop},
        model_(std::move(model)),
        tiles_(cut_tiles(model_->parameters())),
        state_(model_->parameter_count()),
        gradients_(buffer_pool::make(model_->parameter_count(), idle_gradients_max)),
        tile_buffers_(buffer_pool::make(tile_floats_max, idle_tiles_max)),
        input_(job.batch.size / job.batch.slots, data_.image_size()) {
    model_->bind(parameters().data());
  }

  const std::vector<tile>& tiles() const override { return tiles_; }
  std::uint64_t parameter_count() const override { return model_->parameter_count(); }

  std::uint64_t numeric_class() override {
    if (!class_) class_ = canary();
    return *class_;
  }

  void initialise() override {
    model_->initialise(job_.seed, parameters().data());
    state_.restart_optimizer();
  }

  std::optional<block_gradient> compute_block(step_number step, block slots, const std::atomic<bool>& stop,
                                              std::atomic<std::uint64_t>* slots_done) override;
  reduced_tile reduce(tile_id id, std::span<const tile_partial> partials) override;

  void apply(tile_id id, const blob& gradient, const step_outcome& outcome) override {
    const auto& t = at(id);
    const float_view view(gradient);
    PERDURA_CHECK(view.values().size() == t.size, "a tile's gradient has another size than the tile");
    kernels::apply_adamw(job_.optimizer, outcome, state_.view(t), view.values());
  }

  blob copy_tile(tile_id id) const override { return state_.copy(at(id)); }
  void install_tile(tile_id id, std::span<const std::byte> state) override { state_.install(at(id), state); }
  blob copy_parameters(tile_id id) const override {
    return blob::copy_of(std::as_bytes(state_.slice(state_array::parameters, at(id))));
  }
  void install_parameters(tile_id id, std::span<const std::byte> values) override {
    const auto to = std::as_writable_bytes(state_.slice(state_array::parameters, at(id)));
    PERDURA_CHECK(values.size() == to.size(), "a tile's parameters have another size than the tile");
    std::memcpy(to.data(), values.data(), values.size());
  }
  std::uint64_t hash_tile(tile_id id) const override { return state_.hash(at(id)); }

 private:
  // A node of the reduction tree whose sibling is still to come.
  struct pending_sum {
    std::uint32_t slots{};
    double loss{};
    std::shared_ptr<float> values;
  };

  const tile& at(tile_id id) const {
    PERDURA_CHECK(id.value < tiles_.size(), "there is no such tile");
    return tiles_[id.value];
  }
  std::span<float> parameters() { return state_.array(state_array::parameters); }
  std::span<float> gradient(const std::shared_ptr<float>& buffer) const {
    return {buffer.get(), model_->parameter_count()};
  }
  double run_slot(float* gradient) {
    return model_->loss_gradient(input_.noisy(), input_.times(), input_.labels(), input_.target(),
                                 input_.samples(), gradient);
  }
  std::uint64_t canary();

  const job_config job_;
  const image_set data_;
  const sampling draws_;
  const std::unique_ptr<denoiser> model_;
  const std::vector<tile> tiles_;
  training_state state_;
  const std::shared_ptr<buffer_pool> gradients_;
  const std::shared_ptr<buffer_pool> tile_buffers_;
  slot_input input_;
  std::optional<std::uint64_t> class_;
};

std::optional<block_gradient> one_lane_trainer::compute_block(step_number step, block slots,
                                                              const std::atomic<bool>& stop,
                                                              std::atomic<std::uint64_t>* slots_done) {
  PERDURA_CHECK(is_aligned(slots) && slots.end() <= job_.batch.slots,
                "a block is aligned and within the step's slots");
  const auto begin = std::chrono::steady_clock::now();
  std::vector<pending_sum> pending;
  pending.reserve(kernels::slots_log2_max + 2);
  for (std::uint32_t slot = slots.first; slot < slots.end(); ++slot) {
    if (stop.load(std::memory_order_relaxed)) return std::nullopt;
    input_.draw(data_, draws_, step, slot);
    auto buffer = gradients_->take();
    const double loss = run_slot(buffer.get());
    if (slots_done) slots_done->fetch_add(1, std::memory_order_relaxed);
    pending.push_back({1, loss, std::move(buffer)});
    while (pending.size() > 1 && pending.back().slots == pending[pending.size() - 2].slots) {
      auto& left = pending[pending.size() - 2];
      const auto& right = pending.back();
      kernels::add(gradient(left.values), gradient(right.values), gradient(left.values));
      left.loss += right.loss;
      left.slots *= 2;
      pending.pop_back();
    }
  }
  auto& sum = pending.front();
  return block_gradient{.slots = slots,
                        .values = share(std::move(sum.values), model_->parameter_count()),
                        .loss = sum.loss,
                        .spent = std::chrono::steady_clock::now() - begin};
}

reduced_tile one_lane_trainer::reduce(tile_id id, std::span<const tile_partial> partials) {
  const auto& t = at(id);
  std::vector<float_view> views;
  std::vector<kernels::reduce_input> inputs;
  views.reserve(partials.size());
  inputs.reserve(partials.size());
  std::uint32_t next_slot = 0;
  for (const auto& p : partials) {
    PERDURA_CHECK(is_aligned(p.slots) && p.slots.first == next_slot,
                  "partials are aligned, disjoint and in slot order");
    next_slot = p.slots.end();
    views.emplace_back(p.gradient);
    PERDURA_CHECK(views.back().values().size() == t.size, "a partial has another size than its tile");
    inputs.push_back({views.back().values().data(), p.slots.size});
  }
  PERDURA_CHECK(next_slot == job_.batch.slots, "partials cover all slots");

  auto buffer = tile_buffers_->take();
  const float scale = 1.0F / static_cast<float>(job_.batch.size);
  const double norm2 = kernels::reduce(inputs, scale, {buffer.get(), t.size});
  const double loss = sum_of_losses(partials) / job_.batch.size;
  return {.gradient = share(std::move(buffer), t.size),
          .norm2 = norm2,
          .finite = std::isfinite(norm2) && std::isfinite(loss),
          .loss = loss};
}

// Random parameters, for on the initial ones adaLN-Zero's gates are zero and hide most of the network.
std::uint64_t one_lane_trainer::canary() {
  training_state trial(model_->parameter_count());
  const auto values = trial.array(state_array::parameters);
  kernels::fill_normal(
      {.seed = 0, .step = 0, .sample = canary_parameters, .stream = kernels::random_stream::canary}, values);
  for (float& x : values) x *= canary_scale;
  trial.restart_optimizer();

  input_.draw_canary(data_.classes);
  const auto slope = gradients_->take();
  model_->bind(values.data());
  const double loss = run_slot(slope.get());
  model_->bind(parameters().data());

  std::uint64_t hash = kernels::hash64(gradient(slope), std::bit_cast<std::uint64_t>(loss));
  const step_outcome outcome{.gradient_norm = 1.0,
                             .clip_scale = 0.5F,
                             .learning_rate = 1e-2F,
                             .skipped = false,
                             .optimizer_time = 7,
                             .loss = loss,
                             .skips_in_a_row = 0};
  for (const auto& t : tiles_) {
    const auto part = gradient(slope).subspan(t.first, t.size);
    kernels::apply_adamw(job_.optimizer, outcome, trial.view(t), part);
    const std::array<std::uint64_t, 3> line{hash, std::bit_cast<std::uint64_t>(kernels::norm2(part)),
                                            trial.hash(t)};
    hash = kernels::hash64(std::as_bytes(std::span(line)));
  }
  // Zero stands for "not known yet".
  return hash != 0 ? hash : 1;
}

result<void> check_sizes(const job_config& job, const image_set& data, const denoiser& model) {
  const auto refuse = [](std::string why) { return error{errc::invalid_argument, std::move(why)}; };
  const auto& batch = job.batch;
  constexpr std::uint32_t slots_max = 1U << kernels::slots_log2_max;
  if (!std::has_single_bit(batch.slots) || batch.slots > slots_max)
    return refuse("batch.slots is " + std::to_string(batch.slots) + "; it has to be a power of two up to " +
                  std::to_string(slots_max));
  if (batch.size == 0 || batch.size % batch.slots != 0)
    return refuse("batch.size is " + std::to_string(batch.size) +
                  "; it has to be a multiple of batch.slots (" + std::to_string(batch.slots) + ")");
  if (job.precision != "fp32") return refuse("precision is \"" + job.precision + "\"; there is: fp32");
  if (job.optimizer.kind != "adamw")
    return refuse("optimizer.kind is \"" + job.optimizer.kind + "\"; there is: adamw");
  if (data.size() == 0) return refuse("the data set has no samples");
  const image_shape shape{data.channels, data.height, data.width};
  if (shape != model.image() || data.classes != model.classes())
    return refuse("the model is for images of " + std::to_string(model.image().height) + " x " +
                  std::to_string(model.image().width) + " in " + std::to_string(model.classes()) +
                  " classes, the data set has " + std::to_string(data.height) + " x " +
                  std::to_string(data.width) + " in " + std::to_string(data.classes));
  return {};
}

}  // namespace

result<std::unique_ptr<trainer>> assemble_trainer(const job_config& job, image_set data,
                                                  std::unique_ptr<denoiser> model) {
  if (auto fits = check_sizes(job, data, *model); !fits) return fits.failure();
  return std::unique_ptr<trainer>(std::make_unique<one_lane_trainer>(job, std::move(data), std::move(model)));
}

result<std::unique_ptr<trainer>> make_trainer(const job_config& job) {
  pin_numerics();
  auto data = load_images(job.data);
  if (!data) return data.failure();
  auto model = make_denoiser(job);
  if (!model) return model.failure();
  return assemble_trainer(job, std::move(*data), std::move(*model));
}

}  // namespace perdura::worker
