#include "coordinator/console/program.hpp"

#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/config_table.hpp"
#include "coordinator/console/commands.hpp"
#include "coordinator/console/doctor.hpp"
#include "coordinator/console/interchange_commands.hpp"
#include "coordinator/console/launch.hpp"
#include "coordinator/console/logs.hpp"
#include "coordinator/console/pki.hpp"
#include "coordinator/console/reference.hpp"
#include "coordinator/console/repl.hpp"
#include "coordinator/console/settings.hpp"
#include "coordinator/console/up.hpp"

namespace perdura::console {

namespace {

// What the options of the commands that need no coordinator are read into.
struct local_arguments {
  std::string config;
  std::string log_folder;
  std::string console_address;
  std::string reference = "commands";
  logs_options logs;
  pki_options pki;
  interchange_options interchange;
  up_options up;
};

bool never() { return false; }

struct program {
  CLI::App app{"Perdura trains diffusion models on machines that come and go.", "perdura"};
  arguments args;
  local_arguments local;
  const command* chosen = nullptr;
  CLI::App* console = nullptr;
  CLI::App* logs = nullptr;
  CLI::App* doctor = nullptr;
  CLI::App* up = nullptr;
  CLI::App* pki = nullptr;
  CLI::App* reference = nullptr;

  program();
  int run();

 private:
  void declare_up();
  void declare_local();
  // `folder`: the cluster file's, if it has been read.
  result<tls::identity_ptr> identity_of(std::string folder) const;
  // None: the address or the certificate is wrong, and the view has said so.
  std::optional<session> open_session(const std::string& address, renderer& view) const;
  int run_admin_command(renderer& view);
  int run_local_command(renderer& view);
};

void add_config(CLI::App* app, local_arguments& local) {
  app->add_option("--config", local.config, "the cluster's TOML file")
      ->envname("PERDURA_CONFIG")
      ->type_name("FILE");
  app->add_option("--log", local.log_folder, "log folder; default: as configured")->type_name("FOLDER");
}

program::program() {
  app.set_version_flag("--version", perdura::version_text("perdura"));
  app.set_help_all_flag("--help-all", "help for all commands");
  app.add_option("--admin", args.admin, "the coordinator's admin port")
      ->envname("PERDURA_ADMIN")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  app.add_option("--tls", args.tls_folder,
                 "folder of an admin's certificate; default: the cluster file's tls_folder; none: no TLS")
      ->envname("PERDURA_TLS_FOLDER")
      ->type_name("FOLDER");
  app.fallthrough();
  declare_commands(app, args, chosen);
  declare_local();
  for (const auto& external : external_commands())
    app.add_subcommand(external.name,
                       std::string(external.help) + "; see perdura " + external.name + " --help");
  app.footer(
      "Exit codes: 0 done, 1 refused or failed, 2 wrong command line, 3 no coordinator answers, 130 "
      "interrupted.");
}

void program::declare_local() {
  console = app.add_subcommand("console", "the same commands at a prompt, with history and completion");
  console->add_option("HOST:PORT", local.console_address,
                      "the coordinator's admin port; default: as --admin");

  logs = app.add_subcommand("logs", "what this machine's processes have logged");
  logs->add_option("KIND", local.logs.kind, "coordinator, node or worker; default: all")
      ->check(CLI::IsMember({"coordinator", "node", "worker"}));
  logs->add_option("NAME", local.logs.name, "of a node (node-1) or a worker (node-1/0)");
  logs->add_flag("-f,--follow", local.logs.follow, "go on with new lines as they are written");
  logs->add_option("-n,--lines", local.logs.lines, "of each file, the last ones")->capture_default_str();
  add_config(logs, local);

  doctor = app.add_subcommand("doctor", "what is missing or wrong on this machine");
  doctor->add_flag("--json", args.json, "JSON instead of text");
  add_config(doctor, local);
  declare_up();
  pki = declare_pki(app, local.pki, args.json);
  declare_interchange(*app.get_subcommand("ckpt"), local.interchange, args.json);
  reference = app.add_subcommand("reference", "commands or configuration as Markdown, as in docs/");
  reference->add_option("WHAT", local.reference, "commands or configuration")
      ->check(CLI::IsMember({"commands", "configuration"}))
      ->capture_default_str();
}

void program::declare_up() {
  auto& o = local.up;
  up = app.add_subcommand("up", "a whole cluster on this machine, until its job has ended or Ctrl-C");
  up->add_option("--workers", o.workers, "how many in all")
      ->check(CLI::Range(1u, 64u).description("1 to 64"))
      ->capture_default_str();
  up->add_option("--nodes", o.nodes, "node agents that they are dealt out to")
      ->check(CLI::Range(1u, 64u).description("1 to 64"))
      ->capture_default_str();
  up->add_option("--job", o.job_file, "submit it, and end when it has ended")->type_name("FILE");
  up->add_option("--data", o.data_folder, "data folder; default: as configured")->type_name("FOLDER");
  up->add_option("--port", o.port, "for nodes and workers, 0: any free one; default: as configured")
      ->check(CLI::Range(0, 65535).description("0 to 65535"));
  up->add_option("--admin-port", o.admin_port, "for perdura, 0: any free one; default: as configured")
      ->check(CLI::Range(0, 65535).description("0 to 65535"));
  up->add_option("--ready", o.ready_s, "seconds for the workers to join")->capture_default_str();
  up->add_flag("--json", args.json, "JSON instead of text, at the end");
  add_config(up, local);
}

result<tls::identity_ptr> program::identity_of(std::string folder) const {
  if (!args.tls_folder.empty()) folder = args.tls_folder;
  if (folder.empty())
    if (const auto cluster = runtime::load_cluster({}, ""); cluster) folder = cluster->tls_folder;
  return tls::load_if_any(folder, tls::role::admin);
}

std::optional<session> program::open_session(const std::string& address, renderer& view) const {
  const auto to = parse_endpoint(address);
  const auto identity = identity_of("");
  if (to && identity) return session(*to, *identity);
  view.fail(to ? identity.failure() : to.failure());
  return std::nullopt;
}

int program::run_admin_command(renderer& view) {
  auto coordinator = open_session(args.admin, view);
  if (!coordinator) return exit_usage;
  return run_command(*chosen, args, *coordinator, view, never);
}

int program::run_local_command(renderer& view) {
  if (reference->parsed()) {
    std::cout << (local.reference == "commands" ? reference_text() : runtime::config_reference());
    return exit_ok;
  }
  if (console->parsed()) {
    auto coordinator = open_session(local.console_address.empty() ? args.admin : local.console_address, view);
    if (!coordinator) return exit_usage;
    return run_console(*coordinator, wants_colour(STDOUT_FILENO));
  }
  if (pki->parsed()) return run_pki(local.pki, view);
  auto read = read_settings(local.config);
  if (read && !local.log_folder.empty()) read->cluster.log_folder = local.log_folder;
  if (doctor->parsed()) return run_doctor(read, view);
  if (!read) {
    view.fail(read.failure());
    return exit_failed;
  }
  if (logs->parsed()) {
    local.logs.folder = read->cluster.log_folder;
    return show_logs(local.logs, std::cout, std::cerr, never);
  }
  const auto identity = identity_of(read->cluster.tls_folder);
  if (!identity) {
    view.fail(identity.failure());
    return exit_failed;
  }
  local.up.tls = *identity;
  local.up.tls_folder = args.tls_folder;
  local.up.host = read->cluster.host;
  local.up.config_file = local.config;
  local.up.log_folder = read->cluster.log_folder;
  return run_up(local.up, view);
}

int program::run() {
  renderer view(std::cout, std::cerr, {args.json, wants_colour(STDOUT_FILENO)});
  if (chosen != nullptr) return run_admin_command(view);
  if (const auto code = run_interchange(local.interchange, view)) return *code;
  for (const auto* local_command : {console, logs, doctor, up, pki, reference})
    if (local_command->parsed()) return run_local_command(view);
  std::cout << app.help();
  return exit_usage;
}

// As git does: `perdura X` is the program perdura-X, where X is none of our own commands.
std::optional<int> run_external(const std::vector<std::string>& words, const CLI::App& app) {
  if (words.empty() || words.front().empty() || words.front().front() == '-') return std::nullopt;
  const auto& name = words.front();
  std::string wanted = "perdura-" + name;
  std::vector<std::string> rest;
  const auto known = std::find_if(external_commands().begin(), external_commands().end(),
                                  [&](const auto& external) { return name == external.name; });
  const bool is_known = known != external_commands().end();
  if (is_known) {
    wanted = known->program;
    rest = known->first;
  } else {
    const auto own = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == name; });
    if (!own.empty() || name.find('/') != std::string::npos) return std::nullopt;
  }
  rest.insert(rest.end(), words.begin() + 1, words.end());
  auto program = find_program(wanted);
  if (!program && !is_known) return std::nullopt;
  const auto why = program ? become(*program, rest) : program.failure();
  std::cerr << "perdura: " << why.message << "\n";
  return exit_failed;
}

}  // namespace

std::string reference_text() { return markdown_of(program().app); }

int run_program(const std::vector<std::string>& words) {
  program p;
  if (auto code = run_external(words, p.app)) return *code;
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // as CLI11 wants them
  try {
    p.app.parse(std::move(reversed));
  } catch (const CLI::ParseError& e) { return p.app.exit(e) == 0 ? exit_ok : exit_usage; }
  return p.run();
}

}  // namespace perdura::console
