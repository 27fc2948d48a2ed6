// perdura-node: this machine's agent. It starts the workers, tells the coordinator of their ends, and obeys
// its orders.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <string>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/folders.hpp"
#include "actors/runtime/host.hpp"
#include "actors/runtime/incarnation.hpp"
#include "actors/runtime/log_sink.hpp"
#include "actors/runtime/process.hpp"
#include "actors/runtime/system.hpp"
#include "worker/node/commands.hpp"
#include "worker/node/node_actor.hpp"
#include "worker/node/worker_keeper.hpp"

using namespace perdura;
using namespace perdura::worker;

namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr std::size_t name_length_max = 64;
constexpr unsigned devices_max = 64;

struct arguments {
  std::string join;
  std::string name = runtime::host_name();
  unsigned devices = 1;
  std::string host;
  std::string tls_folder;
  std::string log_folder;
  std::string config;
  std::string fault;
  std::string worker_program;
};

int fail(const std::string& why) {
  log::error(why);
  std::fprintf(stderr, "perdura-node: %s\n", why.c_str());
  return exit_failed;
}

std::string flaw_of_name(const std::string& name) {
  const auto is_fine = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= name_length_max && std::all_of(name.begin(), name.end(), is_fine))
    return {};
  return "\"" + name + "\" is no node's name: expected 1 to " + std::to_string(name_length_max) +
         " letters, digits, '-', '_' or '.'";
}

// "node-1.log", "node-gpu-box.log": as `perdura logs node` looks for them.
std::string log_file(const arguments& a) {
  return a.log_folder + "/" + (a.name.starts_with("node") ? "" : "node-") + a.name + ".log";
}

// Fills in what the command line leaves open; opens the log.
result<keeper_options> prepare(arguments& a) {
  runtime::text_map flags;
  if (!a.tls_folder.empty()) flags["tls_folder"] = a.tls_folder;
  const auto config = runtime::load_cluster(flags, a.config);
  if (!config) return config.failure();
  if (a.log_folder.empty()) {
    const auto folders = runtime::choose_folders(*config);
    if (!folders) return folders.failure();
    if (auto made = runtime::make_folders(*folders); !made) return made.failure();
    a.log_folder = folders->log;
  }
  runtime::log_options log;
  log.role = "node " + a.name;
  log.file = log_file(a);
  log.bytes_max = config->log_bytes_max;
  log.files = config->log_files;
  if (auto opened = runtime::open_log(log); !opened) return opened.failure();

  keeper_options o;
  const auto to = a.join.empty() ? endpoint{config->host, config->port} : parse_endpoint(a.join);
  if (!to) return to.failure();
  const bool has_tls = !config->tls_folder.empty();
  if (auto allowed = runtime::check_host(to->host, has_tls); !allowed) return allowed.failure();
  if (!a.host.empty())
    if (auto allowed = runtime::check_host(a.host, has_tls); !allowed) return allowed.failure();
  // The workers' too, though they alone load it: better that the agent does not start than that they do not.
  if (has_tls)
    if (auto theirs = tls::load_identity(config->tls_folder, tls::role::worker); !theirs)
      return theirs.failure();
  if (a.worker_program.empty()) {
    const auto program = runtime::find_program("perdura-worker");
    if (!program) return program.failure();
    a.worker_program = *program;
  }
  o.program = a.worker_program;
  o.name = a.name;
  o.node = runtime::random_incarnation();
  o.devices = a.devices;
  o.coordinator = *to;
  o.host = a.host;
  o.tls_folder = config->tls_folder;
  o.log_folder = a.log_folder;
  o.fault = a.fault;
  return o;
}

void obey(worker_keeper& keeper, const node::command& c) {
  if (const auto* k = std::get_if<kill_worker>(&c)) {
    if (keeper.kill(k->worker)) log::warn("killed life " + short_name(k->worker) + ": " + k->why);
  } else if (const auto* s = std::get_if<stop_node>(&c)) {
    log::info("ends, and its workers with it: " + s->why);
    keeper.stop();
  } else {
    keeper.start_missing();
  }
}

int run(const keeper_options& options) {
  const auto identity = tls::load_if_any(options.tls_folder, tls::role::node);
  if (!identity) return fail(identity.failure().message);
  worker_keeper keeper(options);
  node::command_queue commands([&keeper] { keeper.wake(); });
  const node::stop_signals signals(commands);
  keeper.start_missing();

  std::string refusal;
  std::atomic<bool> is_refused = false;
  node::node_options agent;
  agent.hello.who = options.node;
  agent.hello.name = options.name;
  agent.hello.host = runtime::host_name();
  agent.hello.devices = options.devices;
  agent.hello.pid = static_cast<std::uint32_t>(::getpid());
  agent.coordinator = options.coordinator;
  agent.identity = *identity;
  agent.workers_alive = [&keeper] { return keeper.alive(); };
  agent.obey = [&commands](const node::command& c) { commands.put(c); };
  agent.refused = [&](const std::string& why) {
    if (is_refused.exchange(true)) return;
    refusal = why;
    commands.put(stop_node{why});
  };
  runtime::actor_process process(*identity);
  const auto actor = process.system().spawn(node::agent, std::move(agent));

  while (!keeper.is_over()) {
    for (auto& e : keeper.look_after()) caf::anon_send(actor, node::worker_ended{std::move(e)});
    for (const auto& c : commands.take()) obey(keeper, c);
  }
  runtime::end(actor);
  if (is_refused) return fail(refusal);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  arguments a;
  CLI::App app{"A machine's agent: starts its workers, one a device, and starts again those that end.",
               "perdura-node"};
  app.set_version_flag("--version", version_text("perdura-node"));
  app.add_option("--join", a.join, "the coordinator's port; default: as configured")->type_name("HOST:PORT");
  app.add_option("--name", a.name, "for people and in file names; unique in the cluster")
      ->check(CLI::Validator(flaw_of_name, ""))
      ->capture_default_str();
  app.add_option("--devices", a.devices, "how many workers")
      ->check(CLI::Range(1U, devices_max).description("1 to 64"))
      ->capture_default_str();
  app.add_option("--host", a.host,
                 "this machine's address, for the links between workers; default: the one that leads to the "
                 "coordinator")
      ->type_name("ADDRESS");
  app.add_option("--tls", a.tls_folder, "folder of this machine's certificates; default: as configured")
      ->type_name("FOLDER");
  app.add_option("--log", a.log_folder, "log folder, also for the workers; default: as configured")
      ->type_name("FOLDER");
  app.add_option("--config", a.config, "the cluster's TOML file")
      ->envname("PERDURA_CONFIG")
      ->type_name("FILE");
  app.add_option("--fault", a.fault, "for tests: the first worker's first life does it to itself")
      ->type_name("kill:STEP:PHASE");
  app.add_option("--worker-program", a.worker_program)->group("");
  app.footer(
      "Exit codes: 0 stopped by SIGTERM, SIGINT or the coordinator, 1 failed or refused, 2 wrong command "
      "line.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : exit_usage; }
  const auto options = prepare(a);
  return options ? run(*options) : fail(options.failure().message);
}
