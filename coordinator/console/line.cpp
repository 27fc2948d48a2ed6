#include "coordinator/console/line.hpp"

#include <algorithm>
#include <ostream>

namespace perdura::console {

std::optional<exit_code> parse_words(CLI::App& app, parsed_line& into, std::vector<std::string> words,
                                     std::ostream& out, std::ostream& err) {
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::ParseError& e) { return app.exit(e, out, err) == 0 ? exit_ok : exit_usage; }
  if (into.chosen != nullptr) return std::nullopt;
  out << app.help();
  return exit_usage;
}

}  // namespace perdura::console
