#include "worker/trainer/canary.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "kernels/adamw.hpp"
#include "kernels/hash.hpp"
#include "kernels/philox.hpp"
#include "kernels/sums.hpp"
#include "worker/trainer/state.hpp"

namespace perdura::worker {
namespace {

constexpr std::uint32_t parameters_sample = 3;  // within the canary's stream; slot_input has 0..2
// As initialised, adaLN-Zero's gates are zero and hide most of the network.
constexpr float parameters_scale = 0.05F;

class canary final : public block_surroundings, public gradient_sink {
 public:
  canary(const job_config& job, const std::vector<stage_part>& stages, const std::vector<tile>& tiles,
         training_state& state, buffer_pool& stage_buffers)
      : optimizer_(job.optimizer),
        stages_(stages),
        tiles_(tiles),
        state_(state),
        buffer_(stage_buffers.take()) {}

  bool acquire(std::uint32_t stage) override {
    for_tiles(stage, [&](tile_id id, const tile& t) {
      state_.hold(id);
      const auto values = state_.slice(state_array::parameters, t);
      kernels::fill_normal(
          {.seed = 0, .step = 0, .sample = parameters_sample, .stream = kernels::random_stream::canary},
          values, static_cast<std::uint32_t>(t.first));
      for (float& x : values) x *= parameters_scale;
      state_.round_parameters(t);
    });
    return true;
  }
  void release(std::uint32_t stage) override {
    for_tiles(stage, [&](tile_id id, const tile&) {
      state_.let_go(id);
      state_.drop_parameters(id);
    });
  }
  float* into(std::uint32_t, std::uint32_t) override { return buffer_.get(); }
  void written(std::uint32_t, std::uint32_t stage) override {
    constexpr step_outcome outcome{.gradient_norm = 1.0,
                                   .clip_scale = 0.5F,
                                   .learning_rate = 1e-2F,
                                   .skipped = false,
                                   .optimizer_time = 7,
                                   .loss = 0.0,
                                   .skips_in_a_row = 0};
    for_tiles(stage, [&](tile_id id, const tile& t) {
      for (auto which : {state_array::first_moment, state_array::second_moment})
        std::ranges::fill(state_.slice(which, t), 0.0F);
      std::ranges::copy(state_.slice(state_array::parameters, t),
                        state_.slice(state_array::average, t).begin());
      const std::span<const float> part(buffer_.get() + (t.first - stages_[stage].span.first), t.size);
      kernels::apply_adamw(optimizer_, outcome, state_.view(t), part);
      add({kernels::hash64(part), std::bit_cast<std::uint64_t>(kernels::norm2(part)), state_.hash(id)});
    });
  }
  void add(const std::array<std::uint64_t, 3>& numbers) {
    hash_ = kernels::hash64(std::as_bytes(std::span(numbers)), hash_);
  }
  std::uint64_t hash() const { return hash_; }

 private:
  template <class F>
  void for_tiles(std::uint32_t stage, F f) {
    for (std::uint32_t i = stages_[stage].first_tile; i < stages_[stage].end_tile; ++i)
      f(tile_id(i), tiles_[i]);
  }

  const optimizer_config& optimizer_;
  const std::vector<stage_part>& stages_;
  const std::vector<tile>& tiles_;
  training_state& state_;
  std::shared_ptr<float> buffer_;
  std::uint64_t hash_ = 0;
};

}  // namespace

std::uint64_t run_canary(const job_config& job, denoiser& model, const std::vector<stage_part>& stages,
                         const std::vector<tile>& tiles, std::span<slot_place> place,
                         buffer_pool& stage_buffers) {
  training_state state({.parameter_count = model.parameter_count(),
                        .tiles = tiles,
                        .keeps_all_parameters = false,
                        .computes_in_bf16 = job.precision == "bf16"});
  state.bind_to(model);
  canary c(job, stages, tiles, state, stage_buffers);
  work_watch watch(c);
  double loss = 0;
  run_pass(model, place, 0, c, watch, {&loss, 1});
  // A product in another precision may round to the same bits.
  c.add({std::bit_cast<std::uint64_t>(loss), job.precision == "bf16", 0});
  // Zero stands for "not known yet".
  return c.hash() != 0 ? c.hash() : 1;
}

}  // namespace perdura::worker
