#include "coordinator/console/plan_file.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>
#include <filesystem>

#include "actors/runtime/config_file.hpp"
#include "coordinator/console/launch.hpp"

namespace perdura::console {

namespace json = boost::json;
using namespace coordinator;

namespace {

constexpr std::uint32_t devices_max = 1024;
constexpr std::size_t workers_max = 100'000;
constexpr std::uint32_t usual_workers = 2;

std::vector<std::string> cut(const std::string& text, char at) {
  std::vector<std::string> parts{""};
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// Above 0.
std::optional<double> positive(const std::string& text) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size() || !(value > 0) || value > 1e9)
    return std::nullopt;
  return value;
}

error wrong_machine(const std::string& text, const std::string& what) {
  return {errc::invalid_argument,
          "--node \"" + text + "\": " + what +
              "; expected NAME=DEVICES,host=..,rack=..,zone=..,gib=..,speed=.., as node-1=2,rack=r1,gib=64"};
}

std::uint64_t bytes_at(const json::object& from, const char* key) {
  return from.at(key).to_number<std::uint64_t>();
}

value text(std::string_view s) { return value(json::string(s)); }

// ---- tables

std::vector<column> memory_columns() {
  return {{"memory_bytes", "MEMORY", unit::bytes},
          {"", "WEIGHTS", unit::bytes},
          {"parameters_bytes", ""},
          {"master_bytes", ""},
          {"", "OPTIMIZER", unit::bytes},
          {"moments_bytes", ""},
          {"average_bytes", ""},
          {"", "GRADIENTS", unit::bytes},
          {"gradients_bytes", ""},
          {"partials_bytes", ""},
          {"activations_bytes", "ACTIVATIONS", unit::bytes},
          {"gathered_bytes", "GATHERED", unit::bytes},
          {"buffers_bytes", "BUFFERS", unit::bytes},
          {"process_bytes", "PROCESS", unit::bytes}};
}

std::vector<value> memory_cells(const memory_forecast& m) {
  return {m.total(),
          m.parameters + m.master,
          m.parameters,
          m.master,
          m.moments + m.average,
          m.moments,
          m.average,
          m.gradients + m.partials,
          m.gradients,
          m.partials,
          m.activations,
          m.gathered,
          m.buffers,
          m.process};
}

template <class T>
std::vector<T> joined(std::vector<T> a, const std::vector<T>& b, std::vector<T> c = {}) {
  a.insert(a.end(), b.begin(), b.end());
  a.insert(a.end(), c.begin(), c.end());
  return a;
}

table workers_table(const job_forecast& f, const std::vector<planned_worker>& workers) {
  table t{joined<column>({{"worker", "WORKER"},
                          {"slots", "SLOTS", unit::number},
                          {"blocks", "BLOCKS"},
                          {"tiles_owned", "OWNS", unit::number},
                          {"tiles_held", "HOLDS", unit::number},
                          {"compute_ms", "COMPUTES", unit::milliseconds},
                          {"bytes_out", "SENDS", unit::bytes},
                          {"bytes_in", "RECEIVES", unit::bytes}},
                         memory_columns()),
          {},
          "nobody"};
  for (std::size_t m = 0; m < f.of.size(); ++m) {
    const auto& of = f.of[m];
    json::array blocks;
    for (const auto& b : f.members[m].blocks) blocks.push_back(text(to_string(b)));
    t.rows.push_back(joined<value>({text(workers[m].name), of.slots, blocks, of.tiles_owned, of.tiles_held,
                                    number(of.compute_seconds * 1e3), of.bytes_out, of.bytes_in},
                                   memory_cells(of.memory)));
  }
  return t;
}

const char* name_of(sharding_level level) {
  static constexpr const char* names[] = {"replicated", "optimizer", "gradients", "parameters"};
  return names[static_cast<std::size_t>(level)];
}

// Memory is that of the worker that takes most.
table levels_table(const std::vector<job_forecast>& levels, const job_config& job) {
  table t{joined<column>({{"sharding", "SHARDING"},
                          {"is_this_job", "THIS JOB"},
                          {"replicas", "COPIES", unit::number},
                          {"compute_ms", "COMPUTES", unit::milliseconds},
                          {"step_ms", "A STEP", unit::milliseconds},
                          {"bytes_on_wire", "ON THE WIRE", unit::bytes}},
                         memory_columns()),
          {},
          "none"};
  for (const auto& f : levels) {
    const auto most = std::max_element(f.of.begin(), f.of.end(), [](const auto& a, const auto& b) {
      return a.memory.total() < b.memory.total();
    });
    t.rows.push_back(
        joined<value>({text(name_of(f.level)), f.level == level_of(job), f.replicas,
                       number(f.compute_seconds * 1e3), number(f.step_seconds * 1e3), f.bytes_on_wire},
                      memory_cells(most->memory)));
  }
  return t;
}

table advice_table(const std::vector<std::string>& said) {
  table t{{{"text", "NOTE"}}, {}, "nothing to remark"};
  for (const auto& line : said) t.rows.push_back({text(line)});
  return t;
}

result<job_costs> costs_of(const plan_file_options& o) {
  if (!o.costs.empty()) {
    const auto file = runtime::read_config_file(o.costs);
    return file ? parse_costs(file->text) : file.failure();
  }
  const auto worker = find_program("perdura-worker");
  if (!worker) return worker.failure();
  const auto printed = output_of(*worker, {"--describe", o.file, "--measure", "--json"});
  return printed ? parse_costs(*printed) : printed.failure();
}

result<std::vector<planned_worker>> workers_of(const plan_file_options& o) {
  std::vector<planned_worker> workers;
  for (const auto& node : o.nodes) {
    auto some = parse_machine(node);
    if (!some) return some.failure();
    workers.insert(workers.end(), some->begin(), some->end());
  }
  const auto others = o.nodes.empty() && o.workers == 0 ? usual_workers : o.workers;
  for (std::uint32_t i = 0; i < others; ++i) workers.push_back({"worker-" + std::to_string(i + 1), {}});
  if (workers.size() > workers_max)
    return error{errc::exhausted, "at most " + std::to_string(workers_max) + " workers can be planned for"};
  for (std::size_t i = 0; i < workers.size(); ++i) workers[i].is.who = {0, i + 1};  // in the order given
  return workers;
}

}  // namespace

bool is_job_file(const std::string& argument) {
  std::error_code ignored;
  return argument.ends_with(".toml") || argument.find('/') != std::string::npos ||
         std::filesystem::is_regular_file(argument, ignored);
}

result<std::vector<planned_worker>> parse_machine(const std::string& spec) {
  const auto parts = cut(spec, ',');
  const auto head = cut(parts.front(), '=');
  if (head.size() != 2 || head[0].empty()) return wrong_machine(spec, "it begins with no NAME=DEVICES");
  std::uint32_t devices = 0;
  const auto* end = head[1].data() + head[1].size();
  const auto [stop, failed] = std::from_chars(head[1].data(), end, devices);
  if (failed != std::errc{} || stop != end || devices == 0 || devices > devices_max)
    return wrong_machine(spec, "DEVICES is 1 to " + std::to_string(devices_max));
  candidate is;
  is.at.host = head[0];
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const auto pair = cut(parts[i], '=');
    if (pair.size() != 2) return wrong_machine(spec, "\"" + parts[i] + "\" is no key=value");
    const auto& [key, text] = std::pair(pair[0], pair[1]);
    const auto number = positive(text);
    const bool is_number = key == "gib" || key == "speed";
    if (is_number && !number) return wrong_machine(spec, key + " is a number above 0");
    if (key == "host")
      is.at.host = text;
    else if (key == "rack")
      is.at.rack = text;
    else if (key == "zone")
      is.at.zone = text;
    else if (key == "gib")
      is.memory_bytes = static_cast<std::uint64_t>(*number * (1U << 30) / devices);
    else if (key == "speed")
      is.slots_per_second = *number;
    else
      return wrong_machine(spec, "\"" + key + "\" is unknown");
  }
  std::vector<planned_worker> workers;
  for (std::uint32_t d = 0; d < devices; ++d) workers.push_back({head[0] + "/" + std::to_string(d), is});
  return workers;
}

result<job_costs> parse_costs(const std::string& printed) {
  try {
    const auto all = json::parse(printed).as_object();
    if (!all.contains("costs"))
      return error{errc::corrupt,
                   "these costs were not measured: perdura-worker --describe JOB --measure --json"};
    const auto& costs = all.at("costs").as_object();
    job_costs c;
    for (const auto& t : all.at("tiles").as_array()) {
      const auto& o = t.as_object();
      c.tiles.push_back({bytes_at(o, "first"), o.at("size").to_number<std::uint32_t>(),
                         o.at("stage").to_number<std::uint32_t>()});
    }
    c.process_bytes = bytes_at(costs, "process_bytes");
    c.slot_bytes = bytes_at(costs, "slot_bytes");
    c.workspace_bytes = bytes_at(costs, "workspace_bytes");
    c.slot_seconds = costs.at("slot_seconds").to_number<double>();
    c.reduce_seconds = costs.at("reduce_seconds").to_number<double>();
    c.apply_seconds = costs.at("apply_seconds").to_number<double>();
    if (c.tiles.empty()) return error{errc::corrupt, "costs without tiles"};
    return c;
  } catch (const std::exception& e) {
    return error{errc::corrupt, std::string("what perdura-worker --describe --measure --json printed is not "
                                            "what was expected: ") +
                                    e.what()};
  }
}

document forecast_document(const job_config& job, const job_costs& costs,
                           const std::vector<planned_worker>& workers, double gbit_per_s) {
  std::vector<candidate> candidates;
  std::vector<std::string> names;
  for (const auto& w : workers) {
    candidates.push_back(w.is);
    names.push_back(w.name);
  }
  const auto levels = forecast_all(costs, job, candidates, gbit_per_s * 1e9 / 8);
  const auto& own = levels[static_cast<std::size_t>(level_of(job))];
  std::uint64_t parameters = 0;
  for (const auto& t : costs.tiles) parameters += t.size;
  record head{{{{"job", "job"}, text(job.name)},
               {{"parameters", "parameters"}, parameters},
               {{"tiles", "tiles"}, costs.tiles.size()},
               {{"slots", "slots a step"}, job.batch.slots},
               {{"slot_ms", "a slot", unit::milliseconds}, number(costs.slot_seconds * 1e3)},
               {{"workers", "workers"}, workers.size()},
               {{"gbit_per_s", "Gbit/s each"}, gbit_per_s},
               {{"sharding", "sharding"}, text(job.sharding)},
               {{"replicas", "copies of a tile"}, own.replicas},
               {{"step_ms", "a step", unit::milliseconds}, number(own.step_seconds * 1e3)}}};
  return {{{"job", "", head},
           {"workers", "workers", workers_table(own, workers)},
           {"levels", "sharding; memory of the fullest worker", levels_table(levels, job)},
           {"advice", "to note", advice_table(advice(levels, job, candidates, names))}}};
}

result<void> run_plan_file(const plan_file_options& o, renderer& view) {
  const auto file = runtime::read_config_file(o.file);
  if (!file) return file.failure();
  const auto job = runtime::parse_job(file->text, file->name);
  if (!job) return job.failure();
  const auto workers = workers_of(o);
  if (!workers) return workers.failure();
  const auto costs = costs_of(o);
  if (!costs) return costs.failure();
  view.show(forecast_document(*job, *costs, *workers, o.gbit_per_s));
  return {};
}

}  // namespace perdura::console
