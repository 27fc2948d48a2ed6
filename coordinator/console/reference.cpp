#include "coordinator/console/reference.hpp"

namespace perdura::console {

namespace {

bool is_help(const CLI::Option& option) {
  return option.check_name("--help") || option.check_name("--help-all");
}

std::vector<const CLI::Option*> options_of(const CLI::App& app) {
  return app.get_options([](const CLI::Option* o) { return !is_help(*o); });
}

std::string synopsis(const CLI::App& app, const std::string& name) {
  std::string text = name;
  for (const auto* option : options_of(app))
    if (option->get_positional())
      text += option->get_required() ? " " + option->get_name(true) : " [" + option->get_name(true) + "]";
  return text;
}

std::string option_lines(const CLI::App& app) {
  std::string text;
  for (const auto* option : options_of(app)) {
    std::string head = option->get_positional() ? option->get_name(true) : option->get_name(false, true);
    if (!option->get_positional() && option->get_expected_max() > 0) head += " " + option->get_type_name();
    text += "- `" + head + "`: " + option->get_description();
    if (!option->get_default_str().empty()) text += " (default: " + option->get_default_str() + ")";
    if (!option->get_envname().empty()) text += "; environment: `" + option->get_envname() + "`";
    text += "\n";
  }
  return text;
}

void describe(const CLI::App& app, const std::string& name, std::string& text) {
  const auto commands = app.get_subcommands(nullptr);
  if (commands.empty()) {
    text += "\n#### `" + synopsis(app, name) + "`\n\n" + app.get_description() + "\n";
    if (const auto lines = option_lines(app); !lines.empty()) text += "\n" + lines;
  }
  for (const auto* sub : commands) describe(*sub, name + " " + sub->get_name(), text);
}

}  // namespace

std::string markdown_of(const CLI::App& app) {
  std::string text = "Options before or after any command:\n\n" + option_lines(app);
  describe(app, app.get_name(), text);
  return text;
}

}  // namespace perdura::console
