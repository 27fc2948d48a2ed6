#include "worker/trainer/trainer.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "actors/base/check.hpp"
#include "kernels/sums.hpp"
#include "worker/data/image_set.hpp"
#include "worker/data/sampling.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/block_pass.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/canary.hpp"
#include "worker/trainer/late_copies.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/state.hpp"

namespace perdura::worker {
namespace {

constexpr std::size_t idle_gradients_max = 32;  // full gradients: pending sums and the blocks of two steps
constexpr std::size_t idle_stages_max = kernels::slots_log2_max + 1;
constexpr std::size_t idle_tiles_max = 256;

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
        level_(level_of(job)),
        data_(std::move(data)),
        draws_{.seed = job.seed,
               .data_size = data_.size(),
               .batch_size = job.batch.size,
               .label_drop = job.data.label_drop},
        model_(std::move(model)),
        state_({.parameter_count = model_->parameter_count(),
                .tiles = cut_tiles(model_->parameters()),
                .keeps_all_parameters = level_ != sharding_level::parameters,
                .computes_in_bf16 = job.precision == "bf16"}),
        stages_(parts_of(*model_, tiles())),
        gradients_(buffer_pool::make(model_->parameter_count(), idle_gradients_max)),
        stage_gradients_(buffer_pool::make(largest_stage(), idle_stages_max)),
        tile_buffers_(buffer_pool::make(largest_tile(), idle_tiles_max)) {
    state_.bind_to(*model_);
    for (std::uint32_t i = 0; level_ == sharding_level::replicated && i < tiles().size(); ++i)
      hold(tile_id(i));
  }

  const std::vector<tile>& tiles() const override { return state_.tiles(); }
  std::vector<named_tensor> tensors() const override {
    std::vector<named_tensor> named;
    for (const auto& p : model_->parameters())
      named.push_back({p.name, {p.shape.begin(), p.shape.end()}, p.first});
    return named;
  }
  std::uint64_t parameter_count() const override { return model_->parameter_count(); }

  std::uint64_t numeric_class() override {
    if (!class_) class_ = canary();
    return *class_;
  }

  void hold(tile_id id) override { state_.hold(id); }
  void let_go(tile_id id) override {
    copies_.before_change(id);
    state_.let_go(id);
  }
  bool is_held(tile_id id) const override { return state_.is_held(id); }
  void initialise() override;

  std::optional<computed_sum> compute_block(step_number step, block slots,
                                            block_surroundings& around) override;
  reduced_tile reduce(tile_id id, std::span<const tile_partial> partials) override;

  void apply(tile_id id, const blob& gradient, const step_outcome& outcome) override {
    const auto& t = state_.at(id);
    const float_view view(gradient);
    PERDURA_CHECK(view.values().size() == t.size, "a tile's gradient has another size than the tile");
    PERDURA_CHECK(state_.is_held(id), "only a holder applies a gradient");
    copies_.before_change(id);
    kernels::apply_adamw(job_.optimizer, outcome, state_.view(t), view.values());
    state_.round_parameters(t);
  }

  blob copy_tile(tile_id id) const override { return state_.copy(id); }
  void copy_tile_later(tile_id id, std::function<void(blob)> done) override {
    copies_.want(id, std::move(done));
  }
  void install_tile(tile_id id, std::span<const std::byte> state) override {
    copies_.before_change(id);
    state_.install(id, state);
  }
  std::uint64_t hash_tile(tile_id id) const override { return state_.hash(id); }
  blob copy_parameters(tile_id id) const override { return state_.copy_parameters(id); }
  void install_parameters(tile_id id, std::span<const std::byte> values) override {
    copies_.before_change(id);
    state_.install_parameters(id, values);
  }
  bool has_parameters(tile_id id) const override { return state_.has_parameters(id); }
  void drop_parameters(tile_id id) override { state_.drop_parameters(id); }

  memory_use memory() const override {
    const std::uint64_t samples = job_.batch.size / job_.batch.slots;
    const auto batch = static_cast<std::int64_t>(samples);
    const std::uint64_t input_bytes = 2 * samples * data_.image_size() * sizeof(float);
    return {.state = state_.held_bytes(),
            .parameters = state_.parameter_bytes(),
            .gradients = gradients_->bytes() + stage_gradients_->bytes() + tile_buffers_->bytes(),
            .activations = places_.empty() ? 0
                                           : places_.size() * (model_->slot_bytes(batch) + input_bytes) +
                                                 model_->workspace_bytes(batch)};
  }

 private:
  std::uint64_t largest_stage() const {
    return std::ranges::max(stages_, {}, [](const stage_part& p) { return p.span.count; }).span.count;
  }
  std::uint32_t largest_tile() const { return std::ranges::max(tiles(), {}, &tile::size).size; }
  // Of so many slots side by side.
  std::span<slot_place> places(std::uint32_t count) {
    while (places_.size() < count)
      places_.push_back(
          {slot_input(job_.batch.size / job_.batch.slots, data_.image_size()), model_->make_slot()});
    return {places_.data(), count};
  }
  std::uint64_t canary();

  const job_config job_;
  const sharding_level level_;
  const image_set data_;
  const sampling draws_;
  const std::unique_ptr<denoiser> model_;
  training_state state_;
  late_copies copies_{[this](tile_id id) { return state_.copy(id); }};  // goes before the state does
  const std::vector<stage_part> stages_;
  const std::shared_ptr<buffer_pool> gradients_;
  const std::shared_ptr<buffer_pool> stage_gradients_;
  const std::shared_ptr<buffer_pool> tile_buffers_;
  std::vector<slot_place> places_;
  std::optional<std::uint64_t> class_;
};

void one_lane_trainer::initialise() {
  copies_.before_all_change();
  std::vector<float> values(largest_tile());
  for (std::uint32_t i = 0; i < tiles().size(); ++i) {
    const auto& t = tiles()[i];
    const bool is_held = state_.is_held(tile_id(i));
    if (!is_held && level_ == sharding_level::parameters) continue;
    const std::span initial(values.data(), t.size);
    model_->initialise(job_.seed, t.first, initial);
    state_.set_parameters(t, initial);
    if (!is_held) continue;
    for (auto which : {state_array::parameters, state_array::average})
      std::ranges::copy(initial, state_.slice(which, t).begin());
    for (auto which : {state_array::first_moment, state_array::second_moment})
      std::ranges::fill(state_.slice(which, t), 0.0F);
  }
}

std::optional<computed_sum> one_lane_trainer::compute_block(step_number step, block slots,
                                                            block_surroundings& around) {
  PERDURA_CHECK(is_aligned(slots) && slots.end() <= job_.batch.slots,
                "a block is aligned and within the step's slots");
  work_watch watch(around);
  std::vector<double> losses(slots.size);
  sum_of_slots sum{stages_, tiles(), slots.size, [&](tile_id tile, blob gradient) {
                     watch.tile_done(tile, std::move(gradient), tree_sum(losses));
                   }};
  const bool side_by_side = level_ == sharding_level::gradients || level_ == sharding_level::parameters;
  whole_gradients whole(sum, *gradients_);
  stage_gradients by_stage(sum, *stage_gradients_, *tile_buffers_);
  gradient_sink& sink = side_by_side ? static_cast<gradient_sink&>(by_stage) : whole;

  const auto lanes = places(side_by_side ? slots.size : 1);
  if (around.stop()) return std::nullopt;
  for (std::uint32_t k = 0; k < slots.size; k += static_cast<std::uint32_t>(lanes.size())) {
    for (std::uint32_t i = 0; i < lanes.size(); ++i)
      lanes[i].input.draw(data_, draws_, step, slots.first + k + i);
    if (!run_pass(*model_, lanes, k, sink, watch, std::span(losses).subspan(k, lanes.size())))
      return std::nullopt;
  }
  return computed_sum{tree_sum(losses), watch.spent()};
}

reduced_tile one_lane_trainer::reduce(tile_id id, std::span<const tile_partial> partials) {
  const auto& t = state_.at(id);
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

std::uint64_t one_lane_trainer::canary() {
  const auto place = places(1);
  place[0].input.draw_canary(data_.classes);
  const auto hash = run_canary(job_, *model_, stages_, tiles(), place, *stage_gradients_);
  state_.bind_to(*model_);
  return hash;
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
  if (job.precision != "fp32" && job.precision != "bf16")
    return refuse("precision is \"" + job.precision + "\"; there are: fp32, bf16");
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
