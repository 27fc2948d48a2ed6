// What can be asked of a coordinator, as commands: the same for the command line and the interactive console.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

#include "coordinator/console/checkpoints.hpp"
#include "coordinator/console/exit_code.hpp"
#include "coordinator/console/plan_file.hpp"
#include "coordinator/console/render.hpp"
#include "coordinator/console/session.hpp"

namespace perdura::console {

// What the options of all commands are read into.
struct arguments {
  std::string admin = default_admin;
  std::string tls_folder;
  bool json = false;
  std::string job;
  std::string name;
  std::uint64_t deadline_ms = 0;
  std::string file;
  bool follow = false;
  bool watch = false;
  bool dry_run = false;
  std::uint64_t after = 0;
  std::uint32_t count = 20;
  std::uint64_t steps_from = 0;
  plan_file_options plan;
  store_options store;
  const CLI::App* chosen = nullptr;  // the command, to ask which options were given

  bool given(const char* option) const { return chosen->count(option) > 0; }
};

struct invocation {
  admin::admin_api& api;
  const arguments& args;
  renderer& view;
  std::function<bool()> interrupted;
};

struct command {
  const char* name;  // "ckpt list": of two words
  const char* help;
  void (*declare)(CLI::App& app, arguments& args);
  result<void> (*run)(invocation& call);
  // Of commands that may do without a coordinator: whether these arguments ask for it, and how.
  bool (*stands_alone)(const arguments& args) = nullptr;
  result<void> (*run_alone)(const arguments& args, renderer& view) = nullptr;
};

const std::vector<command>& commands();

// Adds them all to `app`; the chosen one ends up in `chosen`.
void declare_commands(CLI::App& app, arguments& args, const command*& chosen);

// Parses and runs one command. Everything that goes wrong is on the renderer's error stream by then.
exit_code run_command(const command& chosen, const arguments& args, session& to, renderer& view,
                      std::function<bool()> interrupted);

// Words of a line as a shell would split them: quotes keep spaces. Errors: an open quote.
result<std::vector<std::string>> split_words(const std::string& line);

}  // namespace perdura::console
