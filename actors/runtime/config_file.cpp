#include "actors/runtime/config_file.hpp"

#include <toml++/toml.h>

#include <algorithm>

#include "actors/runtime/config_table.hpp"

namespace perdura::runtime {

namespace {

constexpr std::size_t tiers_max = 8;

// Where each field was set, for the errors.
using origins = std::map<std::string, std::string>;

std::string at_line(const std::string& file, const toml::node& node) {
  return file + ":" + std::to_string(node.source().begin.line);
}

std::string set_from_toml(config_field& field, const toml::node& node) {
  if (const auto* text = node.as_string()) return set_string(field, text->get());
  if (const auto* whole = node.as_integer())
    return set_number(field, static_cast<double>(whole->get()), true);
  if (const auto* real = node.as_floating_point()) return set_number(field, real->get(), false);
  if (const auto* is_on = node.as_boolean()) return set_switch(field, is_on->get());
  return "must be a single value, " + allowed_text(field);
}

class file_reader {
 public:
  file_reader(config_table& fields, const std::string& file, config_errors& errors, origins& where)
      : fields_(fields), file_(file), errors_(errors), where_(where) {}

  void read(const std::string& text) {
    try {
      const toml::table root = toml::parse(text, file_);
      read_section(root, "");
    } catch (const toml::parse_error& e) {
      errors_.add(file_ + ":" + std::to_string(e.source().begin.line), "syntax",
                  std::string(e.description()));
    }
  }

 private:
  void read_section(const toml::table& table, const std::string& section) {
    for (const auto& [toml_key, node] : table) {
      const std::string key(toml_key.str());
      const auto field = std::find_if(fields_.begin(), fields_.end(), [&](const config_field& f) {
        return f.section == section && f.key == key;
      });
      const std::string name = section.empty() ? key : section + "." + key;
      if (field != fields_.end()) {
        where_[name] = at_line(file_, node);
        if (const auto flaw = set_from_toml(*field, node); !flaw.empty())
          errors_.add(where_[name], name, flaw);
      } else if (const auto* inner = node.as_table(); inner != nullptr && is_section(name)) {
        read_section(*inner, name);
      } else if (inner != nullptr && section.empty() && holds_sections(key)) {
        read_section(*inner, key);  // [tier.NAME]
      } else {
        errors_.add(at_line(file_, node), name, "is unknown" + did_you_mean(key, names_in(section)));
      }
    }
  }
  bool is_section(const std::string& name) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const config_field& f) { return f.section == name; });
  }
  bool holds_sections(const std::string& name) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const config_field& f) { return f.section.starts_with(name + "."); });
  }
  // Keys of a section; at the top the sections too.
  std::vector<std::string> names_in(const std::string& section) const {
    std::vector<std::string> names;
    for (const auto& f : fields_) {
      if (f.section == section) names.push_back(f.key);
      if (section.empty() && !f.section.empty()) names.push_back(f.section);
    }
    return names;
  }

  config_table& fields_;
  const std::string& file_;
  config_errors& errors_;
  origins& where_;
};

template <class Config>
void check_rules(const Config& config, const std::string& file, const origins& where, config_errors& errors) {
  for (const auto& broken : broken_rules(config)) {
    // A field that is wrong by itself still has its default, so the rule would speak of what nobody wrote.
    if (std::any_of(broken.fields.begin(), broken.fields.end(), [&](const auto& f) { return errors.has(f); }))
      continue;
    std::string place = file.empty() ? "defaults" : file;
    for (auto field = broken.fields.rbegin(); field != broken.fields.rend(); ++field)
      if (const auto found = where.find(*field); found != where.end()) place = found->second;
    errors.add(place, broken.fields.front(), broken.what);
  }
}

// Named by the file alone; what is wrong with the file is said when it is read.
std::vector<tier_config> tiers_of(const file_text& file) {
  std::vector<tier_config> tiers;
  try {
    const toml::table root = toml::parse(file.text, file.name);
    const auto* section = root["tier"].as_table();
    if (section == nullptr) return tiers;
    for (const auto& [key, node] : *section)
      if (node.is_table() && tiers.size() < tiers_max) tiers.emplace_back().name = std::string(key.str());
  } catch (const toml::parse_error&) { tiers.clear(); }
  return tiers;
}

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

// As the environment knows a field.
std::string variable_of(const config_field& f) {
  auto name = upper(f.section.empty() ? f.key : f.section + "_" + f.key);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == '-'; }, '_');
  return "PERDURA_" + name;
}

const std::string& flag_of(const config_field& f) { return f.flag.empty() ? f.key : f.flag; }

std::string as_flag(std::string key) {
  std::replace(key.begin(), key.end(), '_', '-');
  return "--" + key;
}

}  // namespace

result<job_config> parse_job(const std::string& text, const std::string& file_name) {
  job_config job;
  auto fields = fields_of(job);
  config_errors errors;
  origins where;
  file_reader(fields, file_name, errors, where).read(text);
  check_rules(job, file_name, where, errors);
  if (!errors.empty()) return errors.all();
  return job;
}

result<cluster_file> resolve_file(const text_map& flags, const text_map& environment,
                                  const std::optional<file_text>& file) {
  cluster_file all;
  if (file) all.cluster.tiers = tiers_of(*file);
  auto fields = fields_of(all.cluster);
  for (auto& tier : all.cluster.tiers)
    for (auto& field : fields_of(tier)) fields.push_back(std::move(field));
  for (auto& field : fields_of(all.node)) fields.push_back(std::move(field));
  config_errors errors;
  origins where;
  if (file) file_reader(fields, file->name, errors, where).read(file->text);
  auto overrule = [&](config_field& field, const std::string& text, const std::string& origin) {
    where[field.name()] = origin;
    if (const auto flaw = set_from_text(field, text); !flaw.empty()) errors.add(origin, field.name(), flaw);
  };
  for (auto& field : fields) {
    const std::string variable = variable_of(field);
    if (const auto set = environment.find(variable); set != environment.end())
      overrule(field, set->second, "environment " + variable);
    if (const auto set = flags.find(flag_of(field)); set != flags.end())
      overrule(field, set->second, as_flag(flag_of(field)));
  }
  for (const auto& [key, value] : flags)
    if (std::none_of(fields.begin(), fields.end(), [&](const config_field& f) { return flag_of(f) == key; }))
      errors.add(as_flag(key), key, "is unknown");
  check_rules(all.cluster, file ? file->name : "", where, errors);
  check_rules(all.node, file ? file->name : "", where, errors);
  for (const auto& tier : all.cluster.tiers) check_rules(tier, file ? file->name : "", where, errors);
  if (!errors.empty()) return errors.all();
  return all;
}

result<cluster_config> resolve_cluster(const text_map& flags, const text_map& environment,
                                       const std::optional<file_text>& file) {
  auto all = resolve_file(flags, environment, file);
  if (!all) return all.failure();
  return std::move(all->cluster);
}

}  // namespace perdura::runtime
