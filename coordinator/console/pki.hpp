// `perdura pki`: a cluster's own certificate authority, and what it issues.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "coordinator/console/exit_code.hpp"
#include "coordinator/console/render.hpp"

namespace perdura::console {

inline constexpr const char* default_pki_folder = "perdura-pki";

struct pki_options {
  std::string folder = default_pki_folder;
  std::string role;
  std::string name;
  std::vector<std::string> hosts;
  unsigned days = 365;
  std::string out;  // empty: `folder`/`name`
  bool force = false;
  const CLI::App* init = nullptr;
  const CLI::App* issue = nullptr;
};

CLI::App* declare_pki(CLI::App& app, pki_options& options, bool& json);
exit_code run_pki(const pki_options& options, renderer& view);

}  // namespace perdura::console
