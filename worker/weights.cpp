#include "worker/weights.hpp"

#include <algorithm>
#include <vector>

#include "storage/checkpoint_reader.hpp"

namespace perdura::worker {
namespace {

namespace fs = std::filesystem;
using storage::checkpoint_key;

constexpr std::size_t listed_max = 8;

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), listed_max); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > listed_max) text += " and " + std::to_string(names.size() - listed_max) + " more";
  return text;
}

std::string steps_of(const std::vector<checkpoint_key>& keys) {
  std::vector<std::string> steps;
  for (const auto& key : keys) steps.push_back(to_string(key.step));
  return listed(steps);
}

std::string what_is_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed))
    names.push_back(entry->path().filename().string());
  if (failed) return "it cannot be read (" + failed.message() + ")";
  std::sort(names.begin(), names.end());
  return names.empty() ? "it is empty" : "it holds " + listed(names);
}

// A coordinator makes `terms` when it starts, the first snapshot the others.
bool is_store(const fs::path& folder) {
  std::error_code failed;
  return fs::is_directory(folder / "manifests", failed) || fs::is_directory(folder / "packs", failed) ||
         fs::is_directory(folder / "terms", failed);
}

result<fs::path> find_store(const fs::path& path) {
  std::error_code failed;
  if (!fs::exists(path, failed)) return error{errc::not_found, "no checkpoint: there is no " + path.string()};
  for (const auto& folder : {path, path / "store"})
    if (is_store(folder)) return folder;
  return error{errc::not_found,
               "no checkpoint store in " + path.string() + " or in its folder `store`: " + what_is_in(path)};
}

result<chosen_checkpoint> read(const fs::path& store, const checkpoint_key& key) {
  auto contents = storage::read_manifest(storage::object_folder(store), key);
  if (!contents) return contents.failure();
  return chosen_checkpoint{store, *std::move(contents)};
}

result<chosen_checkpoint> read_file(const checkpoint_choice& choice) {
  if (!choice.job.empty() || choice.step)
    return error{errc::invalid_argument, choice.path.string() +
                                             " is one checkpoint already: a job or step to choose "
                                             "is for stores and data folders"};
  const auto file = fs::absolute(choice.path).lexically_normal();
  const auto folder = file.parent_path().parent_path();
  const auto key = storage::parse_checkpoint_object(file.lexically_relative(folder.parent_path()).string());
  if (!key || folder.filename() != "manifests")
    return error{errc::invalid_argument, choice.path.string() + " is not a manifest in a store: those are " +
                                             "STORE/manifests/JOB/TIMELINE-STEP.json"};
  return read(folder.parent_path(), *key);
}

// Of several jobs the one that was saved last. `keys` has each job's newest checkpoint first.
result<chosen_checkpoint> read_newest(const fs::path& store, const std::vector<checkpoint_key>& keys) {
  std::optional<chosen_checkpoint> newest;
  std::string job;
  for (const auto& key : keys) {
    if (key.job == job) continue;
    job = key.job;
    auto one = read(store, key);
    if (!one) return error{one.failure().code, one.failure().message + "; --job and --step take another one"};
    if (!newest || one->contents.created_unix_ms >= newest->contents.created_unix_ms)
      newest = *std::move(one);
  }
  return *std::move(newest);
}

result<chosen_checkpoint> read_step(const fs::path& store, const std::vector<checkpoint_key>& keys,
                                    const checkpoint_choice& choice) {
  if (!choice.step) return read(store, keys.front());
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const auto& key) { return key.step == *choice.step; });
  if (found != keys.end()) return read(store, *found);
  return error{errc::not_found, "job " + keys.front().job + " has no checkpoint of step " +
                                    to_string(*choice.step) + " in " + store.string() + "; it has step " +
                                    steps_of(keys)};
}

error no_such_job(const fs::path& store, const std::string& job, const std::vector<checkpoint_key>& keys) {
  std::vector<std::string> jobs;
  for (const auto& key : keys) jobs.push_back(key.job);
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  return {errc::not_found,
          "no checkpoint of job " + job + " in " + store.string() + "; there are those of " + listed(jobs)};
}

// What a checkpoint's array is made of is checked against the model before a byte is read.
result<void> check_array(const storage::manifest& m, storage::chunk_kind kind, std::size_t count) {
  const std::string what = "checkpoint " + to_string(m.key());
  const auto array =
      std::find_if(m.arrays.begin(), m.arrays.end(), [&](const auto& a) { return a.kind == kind; });
  if (array == m.arrays.end())
    return error{errc::not_found,
                 what + " holds no " + to_string(kind) +
                     (kind == storage::chunk_kind::ema ? "; --raw-weights takes the parameters" : "")};
  const std::uint64_t held = m.tiles.back().first + m.tiles.back().size;
  if (array->element_bytes == sizeof(float) && held == count) return {};
  return error{errc::version_mismatch, what + " holds " + std::to_string(held) + " parameters of " +
                                           std::to_string(array->element_bytes) +
                                           " bytes, but its job's model has " + std::to_string(count) +
                                           " of " + std::to_string(sizeof(float)) +
                                           ": another version of Perdura wrote it (" + m.created_by + ")"};
}

std::string others_than(const chosen_checkpoint& from) {
  auto keys = storage::list_checkpoints(storage::object_folder(from.store), from.contents.job);
  if (!keys) return "";
  std::erase(*keys, from.contents.key());
  return keys->empty() ? "; the job has no other checkpoint"
                       : "; --step takes another one: " + steps_of(*keys);
}

}  // namespace

result<chosen_checkpoint> choose_checkpoint(const checkpoint_choice& choice) {
  std::error_code failed;
  if (fs::is_regular_file(choice.path, failed)) return read_file(choice);
  const auto store = find_store(choice.path);
  if (!store) return store.failure();
  const storage::object_folder objects(*store);
  const auto all = storage::list_checkpoints(objects, "");
  if (!all) return all.failure();
  if (all->empty())
    return error{errc::not_found,
                 "the store " + store->string() + " has no checkpoint yet: none was committed"};
  const auto keys = choice.job.empty() ? all : storage::list_checkpoints(objects, choice.job);
  if (!keys) return keys.failure();
  if (keys->empty()) return no_such_job(*store, choice.job, *all);
  if (!choice.job.empty()) return read_step(*store, *keys, choice);
  auto newest = read_newest(*store, *keys);
  if (!newest || !choice.step) return newest;
  return choose_checkpoint({choice.path, newest->contents.job, choice.step});
}

result<void> load_weights(const chosen_checkpoint& from, storage::chunk_kind array, std::span<float> to) {
  if (auto fits = check_array(from.contents, array, to.size()); !fits) return fits;
  storage::checkpoint_reader reader(from.store, from.contents);
  for (std::uint32_t i = 0; i < from.contents.tiles.size(); ++i) {
    const tile& t = from.contents.tiles[i];
    const auto loaded = reader.load(tile_id(i), array, std::as_writable_bytes(to.subspan(t.first, t.size)));
    if (!loaded) return error{loaded.failure().code, loaded.failure().message + others_than(from)};
  }
  return {};
}

}  // namespace perdura::worker
