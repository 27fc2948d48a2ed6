#include "coordinator/console/interchange_commands.hpp"

#include <boost/json.hpp>
#include <chrono>
#include <filesystem>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/incarnation.hpp"
#include "coordinator/console/launch.hpp"
#include "coordinator/console/settings.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/interchange/export.hpp"
#include "storage/interchange/import.hpp"
#include "storage/tags.hpp"

namespace perdura::console {

namespace {

namespace fs = std::filesystem;
namespace json = boost::json;
namespace outer = interchange;

value text(const std::string& s) { return value(json::string(s)); }

const char* name_of(outer::format f) { return f == outer::format::plain ? "plain" : "diffusers"; }

std::uint64_t unix_ms() {
  using namespace std::chrono;
  return static_cast<std::uint64_t>(
      duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
}

result<fs::path> store_of(const interchange_options& o) {
  if (!o.store.empty()) return fs::path(o.store);
  const auto here = read_settings("");
  if (!here) return here.failure();
  return fs::path(here->cluster.data_folder) / "store";
}

result<void> run_export(const interchange_options& o, renderer& view) {
  const auto store = store_of(o);
  if (!store) return store.failure();
  const auto key = storage::find_checkpoint(storage::object_folder(*store), o.checkpoint);
  if (!key) return key.failure();
  auto reader = storage::checkpoint_reader::open(*store, *key);
  if (!reader) return reader.failure();
  const auto& m = reader->contents();
  const auto job = runtime::parse_job(m.job_text, "the job file in checkpoint " + to_string(*key));
  if (!job) return job.failure();
  outer::export_options options{o.folder,
                                o.format == "plain" ? outer::format::plain : outer::format::diffusers,
                                o.ema ? storage::chunk_kind::ema : storage::chunk_kind::parameters};
  const auto done = outer::export_weights(*reader, job->model, options);
  if (!done)
    return error{done.failure().code, "cannot export " + to_string(*key) + ": " + done.failure().message};
  view.show(record{{{{"file", "file"}, text(done->file.string())},
                    {{"job", "job"}, text(m.job)},
                    {{"step", "step"}, m.standing.step.value},
                    {{"weights", "weights"}, text(to_string(options.weights))},
                    {{"format", "format"}, text(name_of(options.as))},
                    {{"tensors", "tensors"}, done->tensors},
                    {{"bytes", "size", unit::bytes}, done->bytes}}});
  return {};
}

// As a worker cuts the model; the only one who knows.
result<model_tables> describe(const std::string& job_file) {
  const auto worker = find_program("perdura-worker");
  if (!worker) return worker.failure();
  const auto printed = output_of(*worker, {"--describe", job_file, "--json"});
  return printed ? parse_tables(*printed) : printed.failure();
}

result<outer::import_options> options_of(const interchange_options& o) {
  const auto file = runtime::read_config_file(o.job_file);
  if (!file) return file.failure();
  const auto job = runtime::parse_job(file->text, file->name);
  if (!job) return job.failure();
  auto tables = describe(o.job_file);
  if (!tables) return tables.failure();
  const auto store = store_of(o);
  if (!store) return store.failure();
  outer::import_options options;
  options.store = *store;
  options.from = o.folder;
  options.job = o.as.empty() ? "import-" + job->name : o.as;
  options.job_text = file->text;
  options.model = job->model;
  options.tiles = std::move(tables->tiles);
  for (auto& t : tables->tensors) options.tensors.push_back({t.name, t.shape, t.first});
  options.who = runtime::random_incarnation();
  options.created_by = version_text("perdura ckpt import");
  options.created_unix_ms = unix_ms();
  return options;
}

result<void> run_import(const interchange_options& o, renderer& view) {
  const auto options = options_of(o);
  if (!options) return options.failure();
  const auto done = outer::import_weights(*options);
  if (!done) return done.failure();
  view.show(record{{{{"job", "job"}, text(done->key.job)},
                    {{"step", "step"}, done->key.step.value},
                    {{"store", "store"}, text(options->store.string())},
                    {{"format", "format"}, text(name_of(done->as))},
                    {{"tensors", "tensors"}, done->tensors},
                    {{"bytes", "size", unit::bytes}, done->bytes},
                    {{"fixed_positions", ""}, done->has_fixed_positions}}});
  if (done->has_fixed_positions)
    view.say("the file brings no positions: diffusers' fixed ones were taken, and will be trained on");
  return {};
}

void add_store(CLI::App& app, interchange_options& o) {
  app.add_option("--store", o.store, "folder of the store; default: `store` in the configured data folder")
      ->envname("PERDURA_STORE")
      ->type_name("FOLDER");
}

void declare_export(CLI::App& ckpt, interchange_options& o, bool& json) {
  auto* app = ckpt.add_subcommand("export", "a checkpoint's weights as safetensors, for Python");
  app->add_option("CHECKPOINT", o.checkpoint, "JOB (its newest), JOB@STEP, JOB@STEP.TIMELINE or JOB:TAG")
      ->required();
  app->add_option("DIR", o.folder, "where to put them; made if it is not there")->required();
  app->add_flag("--ema", o.ema, "the weights' average (EMA) instead of those of the last step");
  app->add_option("--format", o.format,
                  "diffusers: as its DiTTransformer2DModel; plain: names and shapes as ours")
      ->check(CLI::IsMember({"diffusers", "plain"}))
      ->capture_default_str();
  add_store(*app, o);
  app->add_flag("--json", json, "JSON instead of text");
  o.export_command = app;
}

void declare_import(CLI::App& ckpt, interchange_options& o, bool& json) {
  auto* app = ckpt.add_subcommand("import", "a checkpoint of step 0 from weights in safetensors");
  app->add_option("DIR", o.folder, "folder (diffusers', or as export writes it) or file")->required();
  app->add_option("--job", o.job_file, "the job file that says which model they are of")
      ->type_name("JOBFILE")
      ->required();
  app->add_option("--as", o.as, "whose checkpoint it becomes; default: import-NAME, NAME as in the job file")
      ->type_name("ID");
  add_store(*app, o);
  app->add_flag("--json", json, "JSON instead of text");
  o.import_command = app;
}

}  // namespace

result<model_tables> parse_tables(const std::string& printed) {
  boost::system::error_code failed;
  const auto all = json::parse(printed, failed);
  model_tables tables;
  try {
    if (failed) throw std::invalid_argument(failed.message());
    for (const auto& item : all.as_object().at("tiles").as_array()) {
      const auto& t = item.as_object();
      tables.tiles.push_back({t.at("first").to_number<std::uint64_t>(),
                              t.at("size").to_number<std::uint32_t>(),
                              t.at("stage").to_number<std::uint32_t>()});
    }
    for (const auto& item : all.as_object().at("parameters").as_array()) {
      const auto& p = item.as_object();
      tables.tensors.push_back({json::value_to<std::string>(p.at("name")),
                                json::value_to<std::vector<std::uint64_t>>(p.at("shape")),
                                p.at("first").to_number<std::uint64_t>()});
    }
  } catch (const std::exception& e) {
    return error{errc::corrupt,
                 std::string("perdura-worker does not describe the model as expected: is it of this "
                             "version? ") +
                     e.what()};
  }
  return tables;
}

void declare_interchange(CLI::App& ckpt, interchange_options& options, bool& json) {
  declare_export(ckpt, options, json);
  declare_import(ckpt, options, json);
}

std::optional<exit_code> run_interchange(const interchange_options& o, renderer& view) {
  const bool exports = o.export_command != nullptr && o.export_command->parsed();
  if (!exports && (o.import_command == nullptr || !o.import_command->parsed())) return std::nullopt;
  const auto done = exports ? run_export(o, view) : run_import(o, view);
  if (done) return exit_ok;
  view.fail(done.failure());
  return exit_failed;
}

}  // namespace perdura::console
