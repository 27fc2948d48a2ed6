#include "coordinator/console/checkpoints.hpp"

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "coordinator/console/settings.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/inspect.hpp"
#include "storage/tags.hpp"

namespace perdura::console {

namespace {

namespace json = boost::json;

constexpr const char* checkpoint_help = "JOB (its newest), JOB@STEP, JOB@STEP.TIMELINE or JOB:TAG";

value text(const std::string& s) { return value(json::string(s)); }

std::string short_key(const storage::checkpoint_key& key) {
  return key.job + "@" + to_string(key.step) + "." + to_string(key.timeline);
}

void store_option(CLI::App& app, store_options& options) {
  app.add_option("--store", options.folder,
                 "folder of the store; default: `store` in the configured data folder")
      ->envname("PERDURA_STORE")
      ->type_name("FOLDER");
}

void checkpoint_option(CLI::App& app, store_options& options) {
  app.add_option("CHECKPOINT", options.checkpoint, checkpoint_help)->required();
}

result<std::filesystem::path> store_of(const store_options& options) {
  std::filesystem::path folder = options.folder;
  if (folder.empty()) {
    const auto read = read_settings("");
    if (!read) return read.failure();
    folder = std::filesystem::path(read->cluster.data_folder) / "store";
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(folder, ignored)) return folder;
  return error{errc::not_found, "there is no store at " + folder.string() + "; name its folder with --store"};
}

struct opened {
  std::filesystem::path store;
  storage::checkpoint_key key;
};

result<opened> open(const store_options& options, const std::string& name) {
  auto store = store_of(options);
  if (!store) return store.failure();
  auto key = storage::find_checkpoint(storage::object_folder(*store), name);
  if (!key) return key.failure();
  return opened{*std::move(store), *std::move(key)};
}

value tags_of(const std::map<storage::checkpoint_key, std::vector<std::string>>& tags,
              const storage::checkpoint_key& key) {
  std::string all;
  if (const auto at = tags.find(key); at != tags.end())
    for (const auto& tag : at->second) all += (all.empty() ? "" : " ") + tag;
  return text(all);
}

double share(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

// ---- options
// -----------------------------------------------------------------------------------------------

void show_options(CLI::App& app, store_options& options) {
  checkpoint_option(app, options);
  store_option(app, options);
}

void diff_options(CLI::App& app, store_options& options) {
  app.add_option("A", options.checkpoint, checkpoint_help)->required();
  app.add_option("B", options.other, "the later one")->required();
  app.add_option("--kind", options.kind, "which arrays")
      ->check(CLI::IsMember({"parameters", "first_moment", "second_moment", "ema"}))
      ->capture_default_str();
  store_option(app, options);
}

void verify_options(CLI::App& app, store_options& options) {
  app.add_option("CHECKPOINT", options.checkpoint,
                 std::string(checkpoint_help) + "; default: all of the store");
  store_option(app, options);
}

void du_options(CLI::App& app, store_options& options) { store_option(app, options); }

void tag_options(CLI::App& app, store_options& options) {
  checkpoint_option(app, options);
  app.add_option("TAG", options.tag, "letters, digits, '.', '_' and '-', beginning with a letter")
      ->required();
  store_option(app, options);
}

void untag_options(CLI::App& app, store_options& options) {
  app.add_option("JOB:TAG", options.checkpoint,
                 "the tag to take away; the checkpoint is then kept no longer than others")
      ->required();
  store_option(app, options);
}

// ---- what they do
// ------------------------------------------------------------------------------------------

result<void> run_ckpt_show(const store_options& options, renderer& view) {
  const auto at = open(options, options.checkpoint);
  if (!at) return at.failure();
  const storage::object_folder objects(at->store);
  const auto m = storage::read_manifest(objects, at->key);
  if (!m) return m.failure();
  const auto usage = storage::usage_of(at->store);
  if (!usage) return usage.failure();
  const auto tags = storage::list_tags(objects, at->key.job);
  if (!tags) return tags.failure();
  const auto mine = std::find_if(usage->checkpoints.begin(), usage->checkpoints.end(),
                                 [&](const auto& u) { return u.key == at->key; });
  const auto stored = m->stored_bytes();
  const auto alone = mine == usage->checkpoints.end() ? stored : mine->alone;
  std::uint64_t elements = 0;
  for (const auto& t : m->tiles) elements += t.size;
  record r{{{{"checkpoint", "checkpoint"}, text(short_key(at->key))},
            {{"job", ""}, text(m->job)},
            {{"step", "step", unit::number}, m->standing.step.value},
            {{"timeline", "timeline", unit::number}, m->standing.timeline.value},
            {{"tags", "tags"}, tags_of(*tags, at->key)},
            {{"created_ms", "created", unit::date}, m->created_unix_ms},
            {{"created_by", "by"}, text(m->created_by)},
            {{"era", "era"}, text(to_string(m->at))},
            {{"loss", "loss", unit::number}, number(m->standing.outcome.loss)},
            {{"parameters", "parameters", unit::number}, elements},
            {{"tiles", "tiles", unit::number}, m->tiles.size()},
            {{"bytes", "state", unit::bytes}, m->total_bytes()},
            {{"stored_bytes", "stored", unit::bytes}, stored},
            {{"shared_bytes", "shared with others", unit::bytes}, stored - alone}}};
  table t{{{"kind", "KIND"},
           {"chunks", "CHUNKS", unit::number},
           {"raw", "RAW", unit::number},
           {"planes", "PLANES", unit::number},
           {"delta", "DELTA", unit::number},
           {"chain", "LONGEST CHAIN", unit::number},
           {"bytes", "STATE", unit::bytes},
           {"stored_bytes", "STORED", unit::bytes},
           {"ratio", "RATIO", unit::number}},
          {},
          "nothing"};
  for (const auto& [kind, u] : storage::usage_by_kind(*m)) {
    const auto of = [&](storage::chunk_codec codec) {
      const auto n = u.by_codec.find(codec);
      return value(n == u.by_codec.end() ? std::size_t{0} : n->second);
    };
    t.rows.push_back({text(to_string(kind)), u.chunks, of(storage::chunk_codec::raw),
                      of(storage::chunk_codec::planes), of(storage::chunk_codec::delta), u.chain_most,
                      u.decoded, u.stored, number(share(u.stored, u.decoded))});
  }
  view.show(document{{{"checkpoint", "", std::move(r)}, {"kinds", "how it is written", std::move(t)}}});
  return {};
}

result<void> run_ckpt_diff(const store_options& options, renderer& view) {
  const auto a = open(options, options.checkpoint);
  if (!a) return a.failure();
  const auto b = open(options, options.other);
  if (!b) return b.failure();
  const auto kind = storage::parse_kind(options.kind);
  const auto found = storage::differences(a->store, a->key, b->key, *kind);
  if (!found) return found.failure();
  table t{{{"name", "NAME"},
           {"elements", "ELEMENTS", unit::number},
           {"changed", "CHANGED", unit::number},
           {"largest", "LARGEST", unit::number},
           {"root_mean_square", "RMS", unit::number},
           {"relative", "RELATIVE", unit::number}},
          {},
          "nothing to compare"};
  for (const auto& d : *found)
    t.rows.push_back(
        {text(d.name), d.elements, d.changed, number(d.largest), number(d.root_mean), number(d.relative)});
  view.show(t);
  return {};
}

result<void> run_ckpt_verify(const store_options& options, renderer& view) {
  std::vector<storage::checkpoint_key> keys;
  const auto store = store_of(options);
  if (!store) return store.failure();
  if (options.checkpoint.empty()) {
    auto all = storage::list_checkpoints(storage::object_folder(*store), "");
    if (!all) return all.failure();
    keys = *std::move(all);
  } else {
    const auto one = open(options, options.checkpoint);
    if (!one) return one.failure();
    keys = {one->key};
  }
  table t{{{"checkpoint", "CHECKPOINT"},
           {"chunks", "CHUNKS", unit::number},
           {"bytes", "STATE", unit::bytes},
           {"damaged", "DAMAGED", unit::number},
           {"why", "FIRST"}},
          {},
          "no checkpoints"};
  std::size_t damaged = 0;
  for (const auto& key : keys) {
    auto reader = storage::checkpoint_reader::open(*store, key);
    auto failures = reader ? reader->verify() : std::vector{reader.failure().message};
    damaged += failures.empty() ? 0 : 1;
    t.rows.push_back({text(short_key(key)), reader ? reader->contents().chunks.size() : 0,
                      reader ? reader->contents().total_bytes() : 0, failures.size(),
                      text(failures.empty() ? "" : failures.front())});
    if (!view.is_json())
      for (const auto& line : failures) view.err() << line << "\n";
  }
  view.show(t);
  if (damaged == 0) return {};
  return error{errc::corrupt, std::to_string(damaged) + " of " + std::to_string(keys.size()) +
                                  " checkpoints are damaged; a job passes over them to the next older one"};
}

result<void> run_ckpt_du(const store_options& options, renderer& view) {
  const auto store = store_of(options);
  if (!store) return store.failure();
  const auto usage = storage::usage_of(*store);
  if (!usage) return usage.failure();
  table t{{{"checkpoint", "CHECKPOINT"},
           {"bytes", "STATE", unit::bytes},
           {"stored_bytes", "STORED", unit::bytes},
           {"alone_bytes", "ALONE", unit::bytes},
           {"ratio", "RATIO", unit::number}},
          {},
          "no checkpoints"};
  for (const auto& u : usage->checkpoints)
    t.rows.push_back(
        {text(short_key(u.key)), u.decoded, u.stored, u.alone, number(share(u.stored, u.decoded))});
  record r{{{{"packs_bytes", "packs", unit::bytes}, usage->packs},
            {{"pack_files", "files", unit::number}, usage->pack_files},
            {{"needed_bytes", "needed", unit::bytes}, usage->needed},
            {{"unneeded_bytes", "in packs that no checkpoint needs", unit::bytes}, usage->unneeded_packs}}};
  view.show(document{{{"checkpoints", "checkpoints", std::move(t)}, {"store", "store", std::move(r)}}});
  if (usage->unreadable.empty()) return {};
  for (const auto& line : usage->unreadable) view.err() << line << "\n";
  return error{errc::corrupt, std::to_string(usage->unreadable.size()) + " manifests cannot be read"};
}

result<void> run_ckpt_tag(const store_options& options, renderer& view) {
  const auto at = open(options, options.checkpoint);
  if (!at) return at.failure();
  if (auto done = storage::add_tag(storage::object_folder(at->store), at->key, options.tag); !done)
    return done;
  if (view.is_json())
    view.show(record{{{{"checkpoint", ""}, text(short_key(at->key))}, {{"tag", ""}, text(options.tag)}}});
  else
    view.say(short_key(at->key) + " is " + at->key.job + ":" + options.tag + " and is kept");
  return {};
}

result<void> run_ckpt_untag(const store_options& options, renderer& view) {
  const auto store = store_of(options);
  if (!store) return store.failure();
  const auto split = options.checkpoint.find(':');
  if (split == std::string::npos)
    return error{errc::invalid_argument, "'" + options.checkpoint + "' is not JOB:TAG"};
  const auto job = options.checkpoint.substr(0, split);
  const auto tag = options.checkpoint.substr(split + 1);
  if (auto done = storage::remove_tag(storage::object_folder(*store), job, tag); !done) return done;
  if (view.is_json())
    view.show(record{{{{"removed", ""}, text(options.checkpoint)}}});
  else
    view.say("the tag " + tag + " of job " + job + " is gone");
  return {};
}

}  // namespace perdura::console
