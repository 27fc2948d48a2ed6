#include "storage/tags.hpp"

#include <algorithm>
#include <charconv>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"

namespace perdura::storage {
namespace {

std::string tag_object(const std::string& job, const std::string& tag) { return "tags/" + job + "/" + tag; }

std::string text_of(const checkpoint_key& key) {
  return std::to_string(key.timeline.value) + " " + std::to_string(key.step.value) + "\n";
}

template <class Number>
bool read_number(std::string_view& text, char end, Number& n) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), n);
  if (parsed.ec != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(parsed.ptr - text.data()));
  if (end == '\0') return text.empty();
  if (text.empty() || text.front() != end) return false;
  text.remove_prefix(1);
  return true;
}

result<checkpoint_key> read_tag(const object_folder& objects, const std::string& job,
                                const std::string& name) {
  const auto text = objects.get(name);
  if (!text) return text.failure();
  checkpoint_key key{job, {}, {}};
  std::string_view rest = *text;
  if (!read_number(rest, ' ', key.timeline.value) || !read_number(rest, '\n', key.step.value) ||
      !rest.empty())
    return error{errc::corrupt, (objects.root() / name).string() + " is no tag"};
  return key;
}

std::string some_of(const std::vector<checkpoint_key>& keys) {
  constexpr std::size_t shown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(shown, keys.size()); ++i)
    text += (i == 0 ? "" : ", ") + keys[i].job + "@" + to_string(keys[i].step) + "." +
            to_string(keys[i].timeline);
  return keys.empty() ? "there is none" : "there are " + text + (keys.size() > shown ? ", ..." : "");
}

}  // namespace

bool is_tag(std::string_view tag) { return is_job_name(tag) && (tag.front() < '0' || tag.front() > '9'); }

result<void> add_tag(const object_folder& objects, const checkpoint_key& key, const std::string& tag) {
  if (!is_tag(tag))
    return error{
        errc::invalid_argument,
        "'" + tag.substr(0, 64) + "' is no tag: letters, digits, '.', '_' and '-', beginning with a letter"};
  const auto name = tag_object(key.job, tag);
  if (auto put = objects.put_if_absent(name, text_of(key)); !put) {
    if (put.failure().code != errc::already_exists) return put;
    const auto present = read_tag(objects, key.job, name);
    if (!present) return present.failure();
    if (*present != key)
      return error{errc::already_exists, "the tag " + tag + " is that of " + to_string(*present)};
  }
  const auto exists = objects.exists(manifest_object(key));
  if (!exists) return exists.failure();
  const auto condemned = objects.exists(tombstone_object(key));
  if (!condemned) return condemned.failure();
  if (*exists && !*condemned) return {};
  if (auto taken_back = objects.remove(name); !taken_back) return taken_back;
  return error{errc::not_found, "there is no checkpoint " + to_string(key)};
}

result<void> remove_tag(const object_folder& objects, const std::string& job, const std::string& tag) {
  if (!is_job_name(job) || !is_tag(tag))
    return error{errc::invalid_argument, "'" + job.substr(0, 64) + ":" + tag.substr(0, 64) + "' is no tag"};
  const auto exists = objects.exists(tag_object(job, tag));
  if (!exists) return exists.failure();
  if (!*exists) return error{errc::not_found, "job " + job + " has no tag " + tag};
  return objects.remove(tag_object(job, tag));
}

result<std::map<checkpoint_key, std::vector<std::string>>> list_tags(const object_folder& objects,
                                                                     const std::string& job) {
  const auto names = objects.list(job.empty() ? "tags" : "tags/" + job);
  if (!names) return names.failure();
  std::map<checkpoint_key, std::vector<std::string>> tags;
  for (const auto& name : *names) {
    const auto begin = name.find('/');
    const auto end = name.rfind('/');
    if (begin == end) continue;
    const auto key = read_tag(objects, name.substr(begin + 1, end - begin - 1), name);
    if (key)
      tags[*key].push_back(name.substr(end + 1));
    else if (key.failure().code != errc::not_found)
      log::warn("a tag is passed over: " + key.failure().message);
  }
  return tags;
}

result<checkpoint_key> find_checkpoint(const object_folder& objects, const std::string& text) {
  const auto split = text.find_first_of("@:");
  const std::string job = text.substr(0, split);
  if (!is_job_name(job))
    return error{
        errc::invalid_argument,
        "'" + text.substr(0, 96) + "' names no checkpoint: JOB, JOB@STEP, JOB@STEP.TIMELINE or JOB:TAG"};
  const auto keys = list_checkpoints(objects, job);
  if (!keys) return keys.failure();
  const auto missing = error{errc::not_found, "there is no checkpoint " + text + ": " + some_of(*keys)};
  if (split == std::string::npos) return keys->empty() ? result<checkpoint_key>(missing) : keys->front();
  std::string_view rest = std::string_view(text).substr(split + 1);
  if (text[split] == ':') {
    const auto tags = list_tags(objects, job);
    if (!tags) return tags.failure();
    for (const auto& [key, names] : *tags)
      if (std::find(names.begin(), names.end(), rest) != names.end() &&
          std::find(keys->begin(), keys->end(), key) != keys->end())
        return key;
    return missing;
  }
  std::uint64_t step = 0;
  std::uint32_t timeline = 0;
  const bool has_timeline = rest.find('.') != std::string_view::npos;
  if (!read_number(rest, has_timeline ? '.' : '\0', step) ||
      (has_timeline && !read_number(rest, '\0', timeline)))
    return error{errc::invalid_argument,
                 "'" + text.substr(0, 96) + "' has no step: JOB@STEP or JOB@STEP.TIMELINE"};
  for (const auto& key : *keys)  // newest timeline first
    if (key.step.value == step && (!has_timeline || key.timeline.value == timeline)) return key;
  return missing;
}

}  // namespace perdura::storage
