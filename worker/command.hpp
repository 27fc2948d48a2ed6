// How the commands of once.hpp read their arguments and fail, as every program of Perdura does (docs/cli.md).
#pragma once

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <iostream>
#include <optional>
#include <string>

#include "actors/base/result.hpp"

namespace perdura::worker {

enum exit_code : int { exit_ok = 0, exit_failed = 1, exit_usage = 2 };

// The exit code where the arguments already say how it ends: --help, --version, or a wrong one.
inline std::optional<int> read_arguments(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? exit_ok : exit_usage; }
  return std::nullopt;
}

inline int fail(const std::string& command, const error& e, bool as_json) {
  if (as_json)
    std::cout << boost::json::object{{"error", {{"code", to_string(e.code)}, {"message", e.message}}}}
              << "\n";
  std::cerr << command << ": " << e.message << std::endl;
  return exit_failed;
}

}  // namespace perdura::worker
