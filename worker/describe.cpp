// `perdura-worker --describe`: what a job's model is made of and what a step of it moves, for planning.
#include <algorithm>
#include <array>
#include <cstdio>
#include <iomanip>
#include <memory>
#include <optional>
#include <vector>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "worker/command.hpp"
#include "worker/costs.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/once.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/state.hpp"

namespace perdura::worker {
namespace {

namespace json = boost::json;
constexpr const char* command = "perdura-worker --describe";
constexpr std::uint32_t workers_max = 64;  // to whom votes go to all

struct arguments {
  std::string file;
  std::uint32_t workers = 2;
  bool measure = false;
  bool as_json = false;
};

struct description {
  job_config job;
  std::unique_ptr<denoiser> model;
  std::vector<tile> tiles;
  std::uint64_t state_bytes{};
  std::uint64_t wire_bytes{};
  std::optional<job_costs> costs{};  // if measured
};

// The tiles that a parameter has elements in: [first, end).
struct tile_range {
  std::size_t first, end;
};

tile_range tiles_of(const parameter& p, const std::vector<tile>& tiles) {
  const auto holds = [&](std::uint64_t element) {
    const auto behind = std::ranges::upper_bound(tiles, element, {}, &tile::first);
    return static_cast<std::size_t>(behind - tiles.begin()) - 1;
  };
  return {holds(p.first), holds(p.first + p.count - 1) + 1};
}

// Of replicated state, slots shared out evenly: each block's sum goes to the owners of the tiles, each tile's
// reduced gradient from its owner to all others.
std::uint64_t wire_bytes_of(std::uint64_t parameters, std::uint32_t slots, std::uint32_t workers) {
  std::uint64_t blocks = 0;
  for (std::uint32_t w = 0; w < workers; ++w)
    blocks += aligned_cover(slots * w / workers, slots * (w + 1) / workers).size();
  const std::uint64_t gradient = parameters * sizeof(float);
  return gradient * blocks * (workers - 1) / workers + gradient * (workers - 1);
}

result<description> describe(const arguments& a) {
  const auto file = runtime::read_config_file(a.file);
  if (!file) return file.failure();
  auto job = runtime::parse_job(file->text, file->name);
  if (!job) return job.failure();
  auto model = make_denoiser(*job);
  if (!model) return model.failure();
  description d{*std::move(job), *std::move(model), {}};
  d.tiles = cut_tiles(d.model->parameters());
  d.state_bytes = d.model->parameter_count() * state_arrays * sizeof(float);
  d.wire_bytes = wire_bytes_of(d.model->parameter_count(), d.job.batch.slots, a.workers);
  if (!a.measure) return d;
  const auto costs = measure_costs(d.job);
  if (!costs) return costs.failure();
  d.costs = *costs;
  return d;
}

json::object to_json(const description& d, const arguments& a) {
  json::array tiles;
  for (const tile& t : d.tiles) tiles.push_back({{"first", t.first}, {"size", t.size}, {"stage", t.stage}});
  json::array parameters;
  for (const parameter& p : d.model->parameters()) {
    const auto range = tiles_of(p, d.tiles);
    parameters.push_back({{"name", p.name},
                          {"shape", json::value_from(p.shape)},
                          {"first", p.first},
                          {"count", p.count},
                          {"stage", p.stage},
                          {"tiles", {range.first, range.end}}});
  }
  const auto image = d.model->image();
  json::object o{{"job", d.job.name},
                 {"model", d.job.model.kind},
                 {"image", {image.channels, image.height, image.width}},
                 {"classes", d.model->classes()},
                 {"stages", d.model->stages()},
                 {"parameter_count", d.model->parameter_count()},
                 {"state_bytes", d.state_bytes},
                 {"batch", d.job.batch.size},
                 {"slots", d.job.batch.slots},
                 {"workers", a.workers},
                 {"wire_bytes_per_step", d.wire_bytes}};
  if (d.costs)
    o["costs"] = {{"process_bytes", d.costs->process_bytes},     {"slot_bytes", d.costs->slot_bytes},
                  {"workspace_bytes", d.costs->workspace_bytes}, {"slot_seconds", d.costs->slot_seconds},
                  {"reduce_seconds", d.costs->reduce_seconds},   {"apply_seconds", d.costs->apply_seconds}};
  o["tiles"] = std::move(tiles);
  o["parameters"] = std::move(parameters);
  return o;
}

std::string in_mib(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f MiB", static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const auto n : shape) text += (text.empty() ? "" : " x ") + std::to_string(n);
  return text;
}

using text_row = std::vector<std::string>;

// The first column to the left, the others to the right; the first row is the head.
void print_table(const std::vector<text_row>& rows) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      std::cout << (i == 0 ? std::left : std::right) << std::setw(static_cast<int>(widths[i])) << row[i]
                << (i + 1 < row.size() ? "  " : "\n");
  }
}

void print(const description& d, const arguments& a) {
  const auto image = d.model->image();
  std::cout << d.job.name << ": " << d.job.model.kind << " of " << d.model->parameter_count()
            << " parameters in " << d.model->stages() << " stages and " << d.tiles.size() << " tiles, images "
            << shape_text({image.channels, image.height, image.width}) << ", " << d.model->classes()
            << " classes\n"
            << "state of a replica: " << in_mib(d.state_bytes) << " (parameters, two moments, average)\n"
            << "on the wire a step: " << in_mib(d.wire_bytes) << " among " << a.workers << " workers\n"
            << "a step: " << d.job.batch.size << " images in " << d.job.batch.slots << " slots";
  if (d.costs) {
    const auto& c = *d.costs;
    std::cout << ", " << c.slot_seconds * 1e3 << " ms a slot on one thread here\n"
              << "memory: " << in_mib(c.slot_bytes) << " a slot on its way, " << in_mib(c.workspace_bytes)
              << " for all of them, " << in_mib(c.process_bytes) << " the process and its data set\n"
              << "of a million parameters: " << c.reduce_seconds * 1e9 << " ms to add a sum, "
              << c.apply_seconds * 1e9 << " ms to apply";
  }
  std::cout << "\n\n";
  std::vector<text_row> rows{{"parameter", "shape", "stage", "tiles", "values"}};
  for (const parameter& p : d.model->parameters()) {
    const auto range = tiles_of(p, d.tiles);
    const auto last = range.end - range.first > 1 ? ".." + std::to_string(range.end - 1) : "";
    rows.push_back({p.name, shape_text(p.shape), std::to_string(p.stage), std::to_string(range.first) + last,
                    std::to_string(p.count)});
  }
  print_table(rows);
  std::cout << "\n";
  rows = {{"tile", "stage", "first", "values", "state bytes"}};
  for (std::size_t i = 0; i < d.tiles.size(); ++i) {
    const tile& t = d.tiles[i];
    rows.push_back({std::to_string(i), std::to_string(t.stage), std::to_string(t.first),
                    std::to_string(t.size), std::to_string(t.size * state_arrays * sizeof(float))});
  }
  print_table(rows);
}

}  // namespace

int run_describe(int argc, char** argv) {
  pin_numerics();
  arguments a;
  CLI::App app{"The tables of a job's model: parameters, tiles, and what they cost.", command};
  app.set_version_flag("--version", version_text("perdura-worker"));
  app.add_option("JOB.toml", a.file, "the job file")->required();
  app.add_option("--workers", a.workers, "among how many a step's bytes on the wire are counted")
      ->check(CLI::Range(1u, workers_max).description("1 to " + std::to_string(workers_max)))
      ->capture_default_str();
  app.add_flag("--measure", a.measure,
               "also times and memory on one thread of this machine; reads the data set");
  app.add_flag("--json", a.as_json, "JSON instead of text");
  if (const auto ended = read_arguments(app, argc, argv)) return *ended;
  const auto d = describe(a);
  if (!d) return fail(command, d.failure(), a.as_json);
  if (a.as_json)
    std::cout << to_json(*d, a) << "\n";
  else
    print(*d, a);
  return exit_ok;
}

}  // namespace perdura::worker
