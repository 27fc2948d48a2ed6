// One command line for the coordinator, from words to exit code: what `perdura WORDS` does and what the
// console does with a line.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/console/commands.hpp"

namespace perdura::console {

// A command line that was understood: `chosen` is null when help was shown or nothing was asked.
struct parsed_line {
  arguments args;
  const command* chosen = nullptr;
};

// Splits what CLI11 does from what we do: `app` keeps the options' places in `into`, so neither may move.
// An exit code when parsing was all: help was shown, or the line was wrong.
std::optional<exit_code> parse_words(CLI::App& app, parsed_line& into, std::vector<std::string> words,
                                     std::ostream& out, std::ostream& err);

}  // namespace perdura::console
