#include "actors/runtime/config_table.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "actors/base/overloaded.hpp"

namespace perdura::runtime {

namespace {

std::string number_text(double number) {
  char text[40];
  const bool whole = std::floor(number) == number && std::abs(number) < 1e15;
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%g", number);
  return text;
}

bool is_text(const config_field& field) { return std::holds_alternative<std::string*>(field.value); }
bool is_switch(const config_field& field) { return std::holds_alternative<bool*>(field.value); }
bool is_real(const config_field& field) { return std::holds_alternative<double*>(field.value); }

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

void append_reference(std::string& out, const config_table& table) {
  std::string section = "?";
  for (const auto& field : table) {
    if (field.section != section) {
      section = field.section;
      out += section.empty() ? "\n" : "\n### [" + section + "]\n\n";
      out += "| key | default | allowed | unit | why |\n|---|---|---|---|---|\n";
    }
    out += "| `" + field.key + "` | `" + value_text(field) + "` | " + allowed_text(field) + " | " +
           field.unit + " | " + field.why + " |\n";
  }
}

}  // namespace

void config_errors::add(const std::string& where, const std::string& field, const std::string& what) {
  lines_.push_back({field, where + ": " + field + ": " + what});
}

bool config_errors::has(const std::string& field) const {
  return std::any_of(lines_.begin(), lines_.end(), [&](const line& l) { return l.field == field; });
}

error config_errors::all() const {
  std::string text;
  for (const auto& l : lines_) text += (text.empty() ? "" : "\n") + l.text;
  return {errc::invalid_argument, text};
}

std::string allowed_text(const config_field& field) {
  if (is_switch(field)) return "true or false";
  if (!is_text(field)) return number_text(field.least) + " to " + number_text(field.most);
  if (field.choices.empty()) return "text";
  std::string text = field.choices.size() == 1 ? "only: " : "one of: ";
  for (const auto& choice : field.choices) text += (&choice == &field.choices.front() ? "" : ", ") + choice;
  return text;
}

std::string value_text(const config_field& field) {
  return std::visit(overloaded{[](const std::string* v) { return '"' + *v + '"'; },
                               [](const double* v) { return number_text(*v); },
                               [](const bool* v) { return std::string(*v ? "true" : "false"); },
                               [](const std::chrono::milliseconds* v) { return std::to_string(v->count()); },
                               [](const auto* v) { return std::to_string(*v); }},
                    field.value);
}

std::string set_number(config_field& field, double number, bool is_integer) {
  if (is_switch(field)) return "is a number, must be true or false";
  if (is_text(field)) return "is a number, must be text in quotes (" + allowed_text(field) + ")";
  if (!is_integer && !is_real(field))
    return "is " + number_text(number) + ", must be a whole number, " + allowed_text(field);
  // Written so that NaN is out of range.
  if (!(number >= field.least && number <= field.most))
    return "is " + number_text(number) + ", must be " + allowed_text(field) +
           (field.unit.empty() ? "" : " " + field.unit);
  std::visit(overloaded{[](std::string*) {}, [](bool*) {}, [&](double* v) { *v = number; },
                        [&](std::chrono::milliseconds* v) {
                          *v = std::chrono::milliseconds(static_cast<std::int64_t>(number));
                        },
                        [&](auto* v) { *v = static_cast<std::remove_reference_t<decltype(*v)>>(number); }},
             field.value);
  return "";
}

std::string set_string(config_field& field, const std::string& text) {
  if (is_switch(field)) return "is text, must be true or false, without quotes";
  auto* const* value = std::get_if<std::string*>(&field.value);
  if (value == nullptr)
    return "is text, must be " + std::string(is_real(field) ? "a number" : "a whole number") + ", " +
           allowed_text(field);
  const auto& choices = field.choices;
  if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
    return "is \"" + text + "\", must be " + allowed_text(field) + did_you_mean(text, choices);
  **value = text;
  return "";
}

std::string set_switch(config_field& field, bool is_on) {
  auto* const* value = std::get_if<bool*>(&field.value);
  if (value == nullptr) return "is true or false, must be " + allowed_text(field);
  **value = is_on;
  return "";
}

std::string set_from_text(config_field& field, const std::string& text) {
  if (is_switch(field) && (text == "true" || text == "false")) return set_switch(field, text == "true");
  if (is_switch(field)) return "is \"" + text + "\", must be true or false";
  if (is_text(field)) return set_string(field, text);
  double number = 0;
  const auto* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (text.empty() || parsed.ec != std::errc{} || parsed.ptr != end)
    return "is \"" + text + "\", must be " + (is_real(field) ? "a number" : "a whole number") + ", " +
           allowed_text(field);
  return set_number(field, number, std::floor(number) == number);
}

std::string did_you_mean(const std::string& key, const std::vector<std::string>& keys) {
  const std::string* best = nullptr;
  std::size_t least = key.size() / 3 + 2;
  for (const auto& candidate : keys)
    if (const auto distance = edit_distance(key, candidate); distance < least) {
      least = distance;
      best = &candidate;
    }
  return best == nullptr ? "" : ", did you mean \"" + *best + "\"?";
}

std::string config_reference() {
  job_config job;
  cluster_config cluster;
  node_config node;
  std::string out =
      "## Job file\n\n`perdura submit FILE`. All keys are optional; unknown keys are refused.\n";
  append_reference(out, fields_of(job));
  out +=
      "\n## Cluster file\n\nThe first of `$PERDURA_CONFIG`, `./perdura.toml`, "
      "`$XDG_CONFIG_HOME/perdura/cluster.toml` (`~/.config`), `/etc/perdura/cluster.toml`. A flag "
      "(`--port`, `--admin-port`, `--data`, `--log`) "
      "outranks the environment (`PERDURA_LEASE_MS`, in a section `PERDURA_LABELS_RACK`), that the file, "
      "that "
      "the default. `[tier.NAME]`, any number of them, is for the coordinator; the other sections are for "
      "the node "
      "agents.\n";
  append_reference(out, fields_of(cluster));
  tier_config tier;
  tier.name = "NAME";
  append_reference(out, fields_of(tier));
  append_reference(out, fields_of(node));
  return out;
}

}  // namespace perdura::runtime
