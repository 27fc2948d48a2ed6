#include "worker/once.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <span>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/folders.hpp"
#include "storage/hash.hpp"
#include "worker/command.hpp"
#include "worker/generate.hpp"
#include "worker/trainer/pin.hpp"

namespace perdura::worker {
namespace {

namespace json = boost::json;
constexpr const char* command = "perdura generate";

struct arguments {
  generate_options o;
  std::string checkpoint;
  std::string config;
  std::optional<std::uint64_t> step;
  std::string file = "samples.png";
  std::uint32_t grid = 0;
  bool all = false;
  bool as_json = false;
};

void declare_choice(CLI::App& app, arguments& a) {
  app.add_option(
         "--checkpoint", a.checkpoint,
         "checkpoint store, data folder with a store in it, or manifest; default: the configured data folder")
      ->type_name("PATH");
  app.add_option("--job", a.o.from.job, "whose checkpoint; default: the one that was saved last")
      ->type_name("ID");
  app.add_option("--step", a.step, "of the checkpoint; default: the newest");
  app.add_flag("--raw-weights", a.o.raw_weights, "the last step's weights instead of their average (EMA)");
  app.add_option("--config", a.config, "the cluster's TOML file, for its data folder")
      ->envname("PERDURA_CONFIG")
      ->type_name("FILE");
}

void declare_pictures(CLI::App& app, arguments& a) {
  auto* classes = app.add_option("--class", a.o.classes, "what to draw, by its number; may be repeated");
  auto* all = app.add_flag("--all", a.all, "all classes, a row each")->excludes(classes);
  auto* n = app.add_option("--n", a.o.per_class, "images a class, with the seeds S, S+1, ...")
                ->check(CLI::Range(1u, images_max).description("1 to " + std::to_string(images_max)))
                ->capture_default_str();
  app.add_option("--grid", a.grid, "all classes, N images each")
      ->type_name("N")
      ->check(CLI::Range(1u, images_max).description("1 to " + std::to_string(images_max)))
      ->excludes(classes)
      ->excludes(all)
      ->excludes(n);
  app.add_option("--seed", a.o.seed, "of the first image's noise")->type_name("S")->capture_default_str();
  app.add_option("--guidance", a.o.guidance,
                 "1: as learnt; more: clearer and less various; default: the job's");
  app.add_option("--steps", a.o.steps, "of the solver, more are finer; default: the job's");
  app.add_option("--solver", a.o.solver, "how to go from noise to image")->capture_default_str();
  app.add_option("--zoom", a.o.zoom, "pixels of the file for one of the image, each way")
      ->check(CLI::Range(1, 64).description("1 to 64"))
      ->capture_default_str();
  app.add_option("-o,--out", a.file, "the PNG to write")->type_name("FILE.png")->capture_default_str();
  app.add_option("--threads", a.o.threads, "at most; the pictures do not depend on it; default: all cores")
      ->check(CLI::Range(1, 1024).description("1 to 1024"));
  app.add_flag("--json", a.as_json, "JSON instead of text");
}

result<std::string> configured_data_folder(const std::string& config) {
  const auto cluster = runtime::load_cluster({}, config);
  if (!cluster) return cluster.failure();
  const auto folders = runtime::choose_folders(*cluster);
  if (!folders) return folders.failure();
  return folders->data;
}

std::string number(double v) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", v);
  return text.data();
}

std::string seeds(const generate_options& o) {
  const auto first = std::to_string(o.seed);
  return o.per_class == 1 ? "seed " + first
                          : "seeds " + first + ".." + std::to_string(o.seed + o.per_class - 1);
}

void tell(const arguments& a, const generated& g, double seconds) {
  const auto images = g.classes.size() * a.o.per_class;
  const char* weights = a.o.raw_weights ? "raw" : "EMA";
  if (a.as_json) {
    std::cout << json::object{{"file", a.file},
                              {"width", g.picture.width},
                              {"height", g.picture.height},
                              {"pixels_sha256",
                               to_string(storage::hash_of(std::as_bytes(std::span(g.picture.pixels))))},
                              {"job", g.checkpoint.job},
                              {"step", g.checkpoint.step.value},
                              {"timeline", g.checkpoint.timeline.value},
                              {"weights", a.o.raw_weights ? "raw" : "ema"},
                              {"classes", json::value_from(g.classes)},
                              {"images_per_class", a.o.per_class},
                              {"seed", a.o.seed},
                              {"guidance", g.guidance},
                              {"steps", g.steps},
                              {"solver", a.o.solver},
                              {"threads", g.threads},
                              {"seconds", seconds}}
              << "\n";
    return;
  }
  std::cout << a.file << ": " << images << (images == 1 ? " image" : " images")
            << (g.classes.size() == 1 ? " of class " : " of classes ");
  for (std::size_t i = 0; i < g.classes.size(); ++i) std::cout << (i == 0 ? "" : ", ") << g.classes[i];
  std::cout << ", " << seeds(a.o) << ", guidance " << number(g.guidance) << ", " << g.steps << " "
            << a.o.solver << " steps, from " << to_string(g.checkpoint) << ", " << weights << " weights, in "
            << number(seconds) << " s\n";
}

// On a terminal alone; gone when all is done.
image_progress make_progress(bool as_json) {
  if (as_json || ::isatty(STDERR_FILENO) == 0) return {};
  return [one_at_a_time = std::make_shared<std::mutex>()](std::size_t done, std::size_t of) {
    const std::lock_guard lock(*one_at_a_time);
    if (done < of) std::cerr << "\r" << done << " of " << of << " images" << std::flush;
    if (done == of) std::cerr << "\r\033[K" << std::flush;
  };
}

}  // namespace

int run_once(int argc, char** argv) {
  pin_numerics();
  arguments a;
  CLI::App app{"Samples pictures from a checkpoint, without a cluster: one PNG, a row a class.", command};
  app.set_version_flag("--version", version_text(command));
  app.footer("Exit codes: 0 done, 1 refused or failed, 2 wrong command line.");
  declare_choice(app, a);
  declare_pictures(app, a);
  if (const auto ended = read_arguments(app, argc, argv)) return *ended;
  if (a.o.classes.empty() && !a.all && a.grid == 0) {
    std::cerr << command << ": say what to draw: --class K, --all or --grid N; see --help\n";
    return exit_usage;
  }
  if (a.grid > 0) a.o.per_class = a.grid;
  if (a.step) a.o.from.step = step_number(*a.step);
  a.o.file = a.file;
  if (a.checkpoint.empty()) {
    auto folder = configured_data_folder(a.config);
    if (!folder) return fail(command, folder.failure(), a.as_json);
    a.checkpoint = *std::move(folder);
  }
  a.o.from.path = a.checkpoint;

  const auto began = std::chrono::steady_clock::now();
  const auto made = generate(a.o, make_progress(a.as_json));
  if (!made) return fail(command, made.failure(), a.as_json);
  tell(a, *made, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return exit_ok;
}

}  // namespace perdura::worker
