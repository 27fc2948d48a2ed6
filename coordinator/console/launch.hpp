// Starting the other programs of Perdura.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actors/base/result.hpp"
#include "actors/runtime/process.hpp"

namespace perdura::console {

using runtime::find_program;

// Becomes that program; returns only when that failed.
error become(const std::filesystem::path& program, const std::vector<std::string>& arguments);

// What it prints, once it has ended well. Errors: what it said on standard error, on one line.
result<std::string> output_of(const std::filesystem::path& program,
                              const std::vector<std::string>& arguments);

// A program that another perdura command stands for, as `perdura node`.
struct external_command {
  const char* name;
  const char* help;
  const char* program;
  std::vector<std::string> first;  // arguments that go before the user's
};

const std::vector<external_command>& external_commands();

}  // namespace perdura::console
