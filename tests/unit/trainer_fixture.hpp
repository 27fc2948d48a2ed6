// A tiny job, and the steps of its training by hand.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <vector>

#include "kernels/hash.hpp"
#include "worker/data/image_set.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/trainer.hpp"

namespace perdura::worker {

// A block's sum as its tiles; all the others of a test look the same.
struct block_gradient {
  block slots;
  std::vector<blob> tiles;
  double loss{};
};

inline block_gradient compute(trainer& t, step_number step, block slots) {
  block_collector all(t.tiles().size());
  const auto sum = t.compute_block(step, slots, all);
  REQUIRE(sum.has_value());
  return {slots, std::move(all.tiles), sum->loss};
}

inline job_config tiny_job() {
  job_config job;
  job.model.width = 32;
  job.model.depth = 1;
  job.model.heads = 2;
  job.model.patch = 7;
  job.batch.size = 32;
  job.batch.slots = 8;
  job.optimizer.learning_rate = 1e-2;
  return job;
}

// Fashion-MNIST's shape, smooth blobs for pictures.
inline image_set tiny_images() {
  image_set data{.channels = 1, .height = 28, .width = 28, .classes = 10, .pixels = {}, .labels = {}};
  for (std::uint32_t i = 0; i < 50; ++i) {
    data.labels.push_back(static_cast<std::uint8_t>(i % 10));
    for (std::uint32_t y = 0; y < 28; ++y)
      for (std::uint32_t x = 0; x < 28; ++x)
        data.pixels.push_back(static_cast<std::uint8_t>(x * (i % 10) + y * (i % 3)));
  }
  return data;
}

// `before` is called ahead of the state's initialisation.
inline std::unique_ptr<trainer> make_tiny(const job_config& job = tiny_job(),
                                          const std::function<void(trainer&)>& before = nullptr) {
  pin_numerics();
  auto model = make_denoiser(job);
  REQUIRE(model);
  auto made = assemble_trainer(job, tiny_images(), std::move(*model));
  REQUIRE(made);
  if (before) before(**made);
  (*made)->initialise();
  return std::move(*made);
}

inline step_outcome outcome_of(step_number step) {
  step_outcome outcome;
  outcome.clip_scale = 0.9F;
  outcome.learning_rate = 1e-2F;
  outcome.optimizer_time = step.value;
  return outcome;
}

inline std::vector<reduced_tile> reduce_all(trainer& t, const std::vector<block_gradient>& blocks) {
  std::vector<reduced_tile> reduced;
  for (std::uint32_t i = 0; i < t.tiles().size(); ++i) {
    std::vector<tile_partial> partials;
    for (const auto& b : blocks) partials.push_back({b.slots, i == 0 ? b.loss : 0.0, b.tiles[i]});
    reduced.push_back(t.reduce(tile_id(i), partials));
  }
  return reduced;
}

inline std::uint64_t state_hash(const trainer& t) {
  std::vector<std::uint64_t> hashes;
  for (std::uint32_t i = 0; i < t.tiles().size(); ++i) hashes.push_back(t.hash_tile(tile_id(i)));
  return kernels::hash64(std::as_bytes(std::span(hashes)));
}

}  // namespace perdura::worker
