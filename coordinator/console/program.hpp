// The program `perdura`: which commands it has, and what they do. main.cpp calls it; the reference and the
// tests too.
#pragma once

#include <string>
#include <vector>

namespace perdura::console {

// The exit code. `words` without the program's name.
int run_program(const std::vector<std::string>& words);

// The commands and their options as Markdown, for docs/cli.md.
std::string reference_text();

}  // namespace perdura::console
