#include "worker/costs.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include "actors/runtime/process.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/trainer.hpp"

namespace perdura::worker {

namespace {

constexpr std::uint32_t slots_measured = 9;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <class Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

result<job_costs> measure_costs(const job_config& job) {
  const auto model = make_denoiser(job);
  if (!model) return model.failure();
  auto made = make_trainer(job);
  if (!made) return made.failure();
  auto& t = **made;
  const auto tiles = static_cast<std::uint32_t>(t.tiles().size());
  for (std::uint32_t i = 0; i < tiles; ++i) t.hold(tile_id(i));
  t.initialise();

  job_costs costs;
  std::vector<double> seconds;
  block_collector sum(tiles);
  for (std::uint32_t i = 0; i <= slots_measured; ++i) {
    const auto done = t.compute_block(step_number(1), {i % job.batch.slots, 1}, sum);
    if (i > 0)
      seconds.push_back(std::chrono::duration<double>(done->spent).count());  // the first one warms up
  }
  costs.slot_seconds = median(std::move(seconds));
  costs.workspace_bytes = (*model)->workspace_bytes(job.batch.size / job.batch.slots);
  costs.slot_bytes = t.memory().activations - costs.workspace_bytes;

  std::vector<double> reducing, applying;
  const step_outcome outcome{.clip_scale = 1, .learning_rate = 1e-3F, .optimizer_time = 1};
  for (std::uint32_t i = 0; i < tiles; ++i) {
    const auto size = t.tiles()[i].size;
    std::vector<tile_partial> partials;
    for (const auto& b : aligned_cover(0, job.batch.slots))
      for (const auto half : {block{b.first, b.size / 2}, block{b.first + b.size / 2, b.size / 2}})
        partials.push_back({half, 1.0, sum.tiles[i]});
    if (job.batch.slots == 1) partials = {{{0, 1}, 1.0, sum.tiles[i]}};
    reduced_tile g;
    reducing.push_back(seconds_of([&] { g = t.reduce(tile_id(i), partials); }) / size /
                       static_cast<double>(partials.size()));
    applying.push_back(seconds_of([&] { t.apply(tile_id(i), g.gradient, outcome); }) / size);
  }
  costs.reduce_seconds = median(std::move(reducing));
  costs.apply_seconds = median(std::move(applying));
  const auto resident = runtime::resident_bytes(), kept = t.memory().total();
  costs.process_bytes = resident > kept ? resident - kept : 0;
  return costs;
}

}  // namespace perdura::worker
