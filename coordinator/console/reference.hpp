// The reference of a command line, from its own declarations.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace perdura::console {

std::string markdown_of(const CLI::App& app);

}  // namespace perdura::console
