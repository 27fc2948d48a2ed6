// Pictures from a checkpoint: one file, a row a class. Images are sampled in batches by several lanes
// (threads); which images share a batch depends on their number in the request alone, so the pixels never
// depend on the lanes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "worker/sampler/image.hpp"
#include "worker/weights.hpp"

namespace perdura::worker {

inline constexpr std::uint32_t images_max = 10000;
inline constexpr std::int64_t picture_pixels_max = std::int64_t{1} << 28;

struct generate_options {
  checkpoint_choice from;
  bool raw_weights = false;           // the last step's parameters instead of their average (EMA)
  std::vector<std::int64_t> classes;  // empty: all
  std::uint32_t per_class = 1;        // with the seeds `seed`, seed + 1, ...
  std::uint64_t seed = 1;
  std::optional<double> guidance;      // default: the job's
  std::optional<std::uint32_t> steps;  // default: the job's
  std::string solver = "euler";
  std::int64_t zoom = 4;
  std::uint32_t threads = 0;  // 0: all cores
  std::filesystem::path file;
};

// What was made of what.
struct generated {
  storage::checkpoint_key checkpoint;
  std::vector<std::int64_t> classes;
  double guidance{};
  std::uint32_t steps{};
  std::uint32_t threads{};
  image picture;
};

// Told now and then, from any lane, how many of all images are done.
using image_progress = std::function<void(std::size_t done, std::size_t of)>;

// Errors: those of the choice, the job, the weights and the sampler; each says what is allowed. On any error
// no file is written.
result<generated> generate(const generate_options& options, const image_progress& progress = {});

}  // namespace perdura::worker
