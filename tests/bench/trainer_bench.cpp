// Where a step's time goes on one lane: data, model, tree sum, reduction, optimizer, hash; and what each
// sharding level costs and saves a member of two. On random pictures of Fashion-MNIST's shape, so that it
// needs no data set.
//   trainer_bench [SAMPLES_A_SLOT...]   (default: 8 16)
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/sums.hpp"
#include "worker/data/image_set.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/buffers.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/slot_input.hpp"
#include "worker/trainer/trainer.hpp"

namespace {

using namespace perdura;
using namespace perdura::worker;

constexpr int repetitions = 15;
constexpr int rounds = 7;  // through all variants

double thread_cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// The median of some runs in milliseconds of this thread's processor time: neighbours on the machine cost
// little.
template <class Run>
double median_ms(Run run) {
  run();
  std::vector<double> times;
  for (int i = 0; i < repetitions; ++i) {
    const double begin = thread_cpu_ms();
    run();
    times.push_back(thread_cpu_ms() - begin);
  }
  std::ranges::nth_element(times, times.begin() + repetitions / 2);
  return times[repetitions / 2];
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

image_set pictures() {
  image_set data{.channels = 1, .height = 28, .width = 28, .classes = 10, .pixels = {}, .labels = {}};
  data.labels.resize(1000);
  data.pixels.resize(data.labels.size() * data.image_size());
  for (std::size_t i = 0; i < data.pixels.size(); ++i)
    data.pixels[i] = static_cast<std::uint8_t>(i * 2654435761U >> 24);
  return data;
}

template <class T>
T require(result<T> made) {
  if (made) return std::move(made).value();
  std::fprintf(stderr, "trainer_bench: %s\n", made.failure().message.c_str());
  std::exit(1);
}

void measure(std::uint32_t samples) {
  job_config job;
  job.batch.slots = std::bit_ceil(job.batch.size / samples);
  job.batch.size = job.batch.slots * samples;
  const auto data = pictures();
  auto model = require(make_denoiser(job));
  const auto count = model->parameter_count();
  auto lane = require(assemble_trainer(job, data, require(make_denoiser(job))));
  lane->initialise();

  const auto parameters = allocate_floats(count);
  const auto left = allocate_floats(count);
  const auto right = allocate_floats(count);
  model->initialise(job.seed, 0, {parameters.get(), count});
  model->bind(parameters.get());
  const auto slot_memory = model->make_slot();
  slot_input input(samples, data.image_size());
  const sampling draws{.seed = 1, .data_size = data.size(), .batch_size = job.batch.size, .label_drop = 0.1};
  const step_number step(1);
  const slot_rows rows{input.noisy(), input.times(), input.labels(), input.target(), samples};

  const double draw = median_ms([&] { input.draw(data, draws, step, 0); });
  const double pass = median_ms([&] { loss_gradient(*model, rows, *slot_memory, left.get()); });
  loss_gradient(*model, rows, *slot_memory, right.get());
  const double sum = median_ms([&] {
    kernels::add({left.get(), count}, {right.get(), count}, {left.get(), count});
  });
  const std::uint32_t block_slots = std::min(4U, job.batch.slots);
  const double slot = median_ms([&] {
                        block_surroundings nobody;
                        (void)lane->compute_block(step, {0, block_slots}, nobody);
                      }) /
                      block_slots;

  block_collector half(lane->tiles().size());
  (void)lane->compute_block(step, {0, job.batch.slots / 2}, half);
  const auto tiles = static_cast<std::uint32_t>(lane->tiles().size());
  std::vector<blob> gradients(tiles);
  const double reduce = median_ms([&] {
    for (std::uint32_t i = 0; i < tiles; ++i) {
      const std::vector<tile_partial> partials{
          {{0, job.batch.slots / 2}, 1.0, half.tiles[i]},
          {{job.batch.slots / 2, job.batch.slots / 2}, 1.0, half.tiles[i]}};
      gradients[i] = lane->reduce(tile_id(i), partials).gradient;
    }
  });
  step_outcome outcome;
  outcome.clip_scale = 1.0F;
  outcome.optimizer_time = 1;
  const double apply = median_ms([&] {
    for (std::uint32_t i = 0; i < tiles; ++i) lane->apply(tile_id(i), gradients[i], outcome);
  });
  const double hash = median_ms([&] {
    for (std::uint32_t i = 0; i < tiles; ++i) (void)lane->hash_tile(tile_id(i));
  });

  std::printf("slot of %u samples, %u slots, %llu parameters in %u tiles:\n", samples, job.batch.slots,
              static_cast<unsigned long long>(count), tiles);
  std::printf(
      "  a slot: %.3f ms in a block of %u (data %.3f, model %.3f, tree sum %.3f); %.1f%% not the model's\n",
      slot, block_slots, draw, pass, sum, 100.0 * (draw + sum) / (draw + sum + pass));
  std::printf("  a step: %.1f ms of slots on one lane, reduce 2 partials %.3f, apply %.3f, hash %.3f\n",
              slot * job.batch.slots, reduce, apply, hash);
}

// ---- levels

struct variant {
  const char* sharding;
  const char* precision;
  std::uint32_t pass;  // slots side by side where the level has it so, and in a block
  bool checkpoints;
};
constexpr std::uint32_t block_slots = 8;

// A member that holds every other tile and gathers the rest from a copy.
class half_member final : public block_surroundings {
 public:
  half_member(const variant& v, std::uint32_t samples, const image_set& data) : variant_(v) {
    job_config job;
    job.batch.slots = std::bit_ceil(job.batch.size / samples);
    job.batch.size = job.batch.slots * samples;
    job.sharding = v.sharding;
    job.precision = v.precision;
    job.model.activation_checkpointing = v.checkpoints;
    trainer_ = require(assemble_trainer(job, data, require(make_denoiser(job))));
    for (std::uint32_t i = 0; i < trainer_->tiles().size(); i += 2) trainer_->hold(tile_id(i));
    trainer_->initialise();
    job.sharding = "replicated";
    const auto whole = require(assemble_trainer(job, data, require(make_denoiser(job))));
    whole->initialise();
    for (std::uint32_t i = 0; i < whole->tiles().size(); ++i)
      copies_.push_back(whole->copy_parameters(tile_id(i)));
  }

  bool acquire(std::uint32_t stage) override {
    for_tiles(stage, [&](tile_id id) {
      if (!trainer_->has_parameters(id)) trainer_->install_parameters(id, copies_[id.value].bytes());
    });
    most_parameters_ = std::max(most_parameters_, trainer_->memory().parameters);
    return true;
  }
  void release(std::uint32_t stage) override {
    for_tiles(stage, [&](tile_id id) { trainer_->drop_parameters(id); });
  }

  void run(step_number step) {
    const double begin = thread_cpu_ms();
    for (std::uint32_t first = 0; first < block_slots; first += variant_.pass)
      (void)trainer_->compute_block(step, {first, variant_.pass}, *this);
    times_.push_back((thread_cpu_ms() - begin) / block_slots);
  }

  // Against the first variant of its run.
  void print(double baseline_ms) {
    const auto m = trainer_->memory();
    const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::printf("  %-10s %s %4u %s  %7.3f (%+5.1f%%)  %6.2f %6.2f %6.2f %6.2f\n", variant_.sharding,
                variant_.precision, variant_.pass, variant_.checkpoints ? "input" : "  all", median(),
                100.0 * (median() / baseline_ms - 1.0), mib(m.state), mib(most_parameters_), mib(m.gradients),
                mib(m.activations));
  }
  double median() {
    std::ranges::nth_element(times_, times_.begin() + static_cast<std::ptrdiff_t>(times_.size() / 2));
    return times_[times_.size() / 2];
  }

 private:
  template <class F>
  void for_tiles(std::uint32_t stage, F f) {
    for (std::uint32_t i = 0; i < trainer_->tiles().size(); ++i)
      if (trainer_->tiles()[i].stage == stage) f(tile_id(i));
  }

  const variant variant_;
  std::unique_ptr<trainer> trainer_;
  std::vector<blob> copies_;
  std::uint64_t most_parameters_ = 0;
  std::vector<double> times_;
};

// Turn and turn about, so that all see the same neighbours.
void measure_levels(std::uint32_t samples) {
  const auto data = pictures();
  const std::vector<variant> variants{
      {"replicated", "fp32", 8, false}, {"optimizer", "fp32", 8, false},  {"gradients", "fp32", 1, false},
      {"gradients", "fp32", 2, false},  {"gradients", "fp32", 4, false},  {"gradients", "fp32", 8, false},
      {"parameters", "fp32", 1, false}, {"parameters", "fp32", 2, false}, {"parameters", "fp32", 4, false},
      {"parameters", "fp32", 8, false}, {"replicated", "fp32", 8, true},  {"parameters", "fp32", 4, true},
      {"parameters", "fp32", 8, true},  {"replicated", "bf16", 8, false}, {"parameters", "bf16", 4, false},
      {"parameters", "bf16", 4, true}};
  std::vector<half_member> members;
  members.reserve(variants.size());
  for (const auto& v : variants) members.emplace_back(v, samples, data);
  for (int i = 0; i < rounds; ++i)
    for (auto& m : members) m.run(step_number(1));
  std::printf(
      "slot of %u samples, a member of two, %u slots in blocks, medians of %d rounds; MiB as the"
      " trainer counts them:\n"
      "  sharding   prec block keeps  ms a slot          state parameters gradients activations\n",
      samples, block_slots, rounds);
  for (auto& m : members) m.print(members.front().median());
}

}  // namespace

int main(int argc, char** argv) {
  pin_numerics();
#ifdef NDEBUG
  const char* build = "release";
#else
  const char* build = "debug";
#endif
  std::printf("%s, %ld cores, %s build, seed 1, medians of %d, processor time\n", processor().c_str(),
              sysconf(_SC_NPROCESSORS_ONLN), build, repetitions);
  if (argc < 2) {
    measure(8);
    measure(16);
    measure_levels(8);
  }
  for (int i = 1; i < argc; ++i) {
    const long samples = std::strtol(argv[i], nullptr, 10);
    if (samples < 1 || samples > 128) {
      std::fprintf(stderr, "trainer_bench: samples a slot: 1 to 128, not %s\n", argv[i]);
      return 2;
    }
    measure(static_cast<std::uint32_t>(samples));
    measure_levels(static_cast<std::uint32_t>(samples));
  }
  return 0;
}
