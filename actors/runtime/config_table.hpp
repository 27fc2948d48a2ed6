// Configuration structs as tables: each field has a key, a unit, an allowed range and a line of why; parsing,
// validation, defaults, --help and the reference document are made from the table.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/node_config.hpp"
#include "actors/base/result.hpp"

namespace perdura::runtime {

using value_pointer = std::variant<std::uint16_t*, std::uint32_t*, std::uint64_t*, double*, std::string*,
                                   std::int32_t*, bool*, std::chrono::milliseconds*>;

// One field of a struct that lives as long as the table.
struct config_field {
  std::string section;  // "" at the top of the file
  std::string key;
  value_pointer value;
  std::string unit;
  double least = 0;  // of a number
  double most = 0;
  std::vector<std::string> choices;  // of a string; none: any
  std::string why;
  std::string flag = {};  // where it is called otherwise on the command line than in the file

  std::string name() const { return section.empty() ? key : section + "." + key; }
};
using config_table = std::vector<config_field>;

config_table fields_of(job_config& job);
config_table fields_of(cluster_config& cluster);
config_table fields_of(node_config& node);
config_table fields_of(tier_config& tier);  // its section is [tier.NAME]

// Everything that is wrong with a file, one line each: "where: field: what is wrong and what is allowed".
class config_errors {
 public:
  void add(const std::string& where, const std::string& field, const std::string& what);
  bool empty() const { return lines_.empty(); }
  bool has(const std::string& field) const;
  // errc::invalid_argument.
  error all() const;

 private:
  struct line {
    std::string field;
    std::string text;
  };
  std::vector<line> lines_;
};

// Rules over several fields, each by the fields' names and what is wrong.
struct broken_rule {
  std::vector<std::string> fields;
  std::string what;
};
std::vector<broken_rule> broken_rules(const job_config& job);
std::vector<broken_rule> broken_rules(const cluster_config& cluster);
std::vector<broken_rule> broken_rules(const node_config& node);
std::vector<broken_rule> broken_rules(const tier_config& tier);

// Sets a field, or says what is wrong and what is allowed.
std::string set_number(config_field& field, double number, bool is_integer);
std::string set_string(config_field& field, const std::string& text);
std::string set_switch(config_field& field, bool is_on);
// From a flag or the environment, where everything is text.
std::string set_from_text(config_field& field, const std::string& text);

std::string allowed_text(const config_field& field);  // "1 to 65535", "one of: adamw", "text"
std::string value_text(const config_field& field);    // as it is written in the file
// "" or ", did you mean \"width\"?"
std::string did_you_mean(const std::string& key, const std::vector<std::string>& keys);

// What there is to configure, as markdown tables.
std::string config_reference();

}  // namespace perdura::runtime
