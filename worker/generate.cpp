#include "worker/generate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <thread>

#include "actors/runtime/config_file.hpp"
#include "worker/model/buffer.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/sampler/sampler.hpp"

namespace perdura::worker {
namespace {

namespace fs = std::filesystem;

// Two rows an image under guidance: enough for the matrix products, little memory, and few images for many
// lanes.
constexpr std::size_t batch_images = 4;
// One class has no row of its own to fill: beyond this its images become a square.
constexpr std::uint32_t row_images_max = 8;

struct picture_size {
  std::int64_t columns, width, height;
};

picture_size size_of_picture(const generate_options& o, const image_shape& shape, std::size_t classes) {
  const auto gap = grid_options{}.gap;
  const auto images = static_cast<std::int64_t>(classes) * o.per_class;
  std::int64_t columns = o.per_class;
  if (classes == 1 && o.per_class > row_images_max)
    columns = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(o.per_class))));
  const std::int64_t rows = (images + columns - 1) / columns;
  return {columns, columns * (shape.width * o.zoom + gap) - gap, rows * (shape.height * o.zoom + gap) - gap};
}

// Found out before minutes of sampling, not after.
result<void> check_output(const generate_options& o, const image_shape& shape, std::size_t classes) {
  const auto images = static_cast<std::uint64_t>(classes) * o.per_class;
  if (images == 0 || images > images_max)
    return error{errc::invalid_argument,
                 std::to_string(images) + " images asked for: must be 1.." + std::to_string(images_max)};
  const auto size = size_of_picture(o, shape, classes);
  if (o.zoom < 1 || size.width > picture_pixels_max / size.height)
    return error{errc::invalid_argument, "a picture of " + std::to_string(size.width) + " x " +
                                             std::to_string(size.height) + " pixels is too large: at most " +
                                             std::to_string(picture_pixels_max) + " are allowed; lower zoom"};
  std::error_code failed;
  const auto folder = fs::absolute(o.file).parent_path();
  if (!fs::is_directory(folder, failed))
    return error{errc::not_found,
                 "cannot write " + o.file.string() + ": there is no folder " + folder.string()};
  if (fs::is_directory(o.file, failed))
    return error{errc::invalid_argument, "cannot write " + o.file.string() + ": it is a folder"};
  return {};
}

// Class by class, each with all seeds.
result<std::vector<sample_request>> make_requests(const generate_options& o, const generated& g,
                                                  const denoiser& model) {
  std::vector<sample_request> requests;
  for (const auto label : g.classes) {
    for (std::uint32_t i = 0; i < o.per_class; ++i)
      requests.push_back({label, o.seed + i, g.steps, static_cast<float>(g.guidance), o.solver});
    // The sampler knows what is allowed.
    if (const auto valid = sampling::start(requests.back(), model); !valid) return valid.failure();
  }
  return requests;
}

// Each lane takes the next batch until none is left. Batches are begun in order, so where several fail the
// first of them is always among those that ran: the same error for any number of lanes.
result<std::vector<image>> sample_in_lanes(const std::vector<std::unique_ptr<denoiser>>& lanes,
                                           std::span<const sample_request> requests,
                                           const image_progress& progress) {
  const std::size_t batches = (requests.size() + batch_images - 1) / batch_images;
  std::vector<result<std::vector<image>>> made(batches, std::vector<image>{});
  std::atomic<std::size_t> next{0};
  std::atomic<std::size_t> done{0};
  std::atomic<bool> failed{false};
  const auto work = [&](denoiser& model) {
    while (!failed) {
      const std::size_t batch = next++;
      if (batch >= batches) return;
      const std::size_t first = batch * batch_images;
      const std::size_t count = std::min(batch_images, requests.size() - first);
      made[batch] = sample(model, requests.subspan(first, count));
      if (!made[batch]) failed = true;
      if (progress) progress(done += count, requests.size());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 1; i < lanes.size(); ++i) threads.emplace_back(work, std::ref(*lanes[i]));
    work(*lanes.front());
  }
  std::vector<image> images;
  for (auto& batch : made) {
    if (!batch) return batch.failure();
    images.insert(images.end(), batch->begin(), batch->end());
  }
  return images;
}

// As many as there is work for, each with its own workspace and the same weights.
result<std::vector<std::unique_ptr<denoiser>>> make_lanes(const job_config& job, const float* weights,
                                                          std::size_t images, std::uint32_t threads) {
  const std::size_t cores = threads > 0 ? threads : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::unique_ptr<denoiser>> lanes;
  for (std::size_t i = 0; i < std::min(cores, (images + batch_images - 1) / batch_images); ++i) {
    auto model = make_denoiser(job);
    if (!model) return model.failure();
    (*model)->bind(weights);
    lanes.push_back(*std::move(model));
  }
  return lanes;
}

}  // namespace

result<generated> generate(const generate_options& o, const image_progress& progress) {
  const auto chosen = choose_checkpoint(o.from);
  if (!chosen) return chosen.failure();
  const auto key = chosen->contents.key();
  const auto job =
      runtime::parse_job(chosen->contents.job_text, "the job file in checkpoint " + to_string(key));
  if (!job) return job.failure();
  const auto model = make_denoiser(*job);
  if (!model) return model.failure();

  generated g{key, o.classes, o.guidance.value_or(job->sample.guidance), o.steps.value_or(job->sample.steps),
              0,   {}};
  if (g.classes.empty()) {
    g.classes.resize(static_cast<std::size_t>((*model)->classes()));
    std::iota(g.classes.begin(), g.classes.end(), 0);
  }
  const auto shape = (*model)->image();
  if (auto fits = check_output(o, shape, g.classes.size()); !fits) return fits.failure();
  const auto requests = make_requests(o, g, **model);
  if (!requests) return requests.failure();

  buffer weights;
  weights.reserve((*model)->parameter_count());
  const auto array = o.raw_weights ? storage::chunk_kind::parameters : storage::chunk_kind::ema;
  const auto loaded = load_weights(*chosen, array, {weights.data(), (*model)->parameter_count()});
  if (!loaded) return loaded.failure();
  const auto lanes = make_lanes(*job, weights.data(), requests->size(), o.threads);
  if (!lanes) return lanes.failure();
  const auto images = sample_in_lanes(*lanes, *requests, progress);
  if (!images) return images.failure();

  g.threads = static_cast<std::uint32_t>(lanes->size());
  g.picture =
      grid_of(*images, {.columns = size_of_picture(o, shape, g.classes.size()).columns, .zoom = o.zoom});
  if (auto written = write_png(g.picture, o.file); !written) return written.failure();
  return g;
}

}  // namespace perdura::worker
