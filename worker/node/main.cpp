// perdura-node: this machine's agent. It starts the workers, tells the coordinator of their ends, and obeys
// its orders.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>
#include <string>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/config_table.hpp"
#include "actors/runtime/folders.hpp"
#include "actors/runtime/host.hpp"
#include "actors/runtime/incarnation.hpp"
#include "actors/runtime/log_sink.hpp"
#include "actors/runtime/process.hpp"
#include "actors/runtime/system.hpp"
#include "worker/node/commands.hpp"
#include "worker/node/node_actor.hpp"
#include "worker/node/notice_watch.hpp"
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
  runtime::text_map settings;  // of node_config, by flag
};

struct agent_options {
  keeper_options keeper;
  node_config node;
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
result<agent_options> prepare(arguments& a) {
  std::erase_if(a.settings, [](const auto& flag) { return flag.second.empty(); });
  if (!a.tls_folder.empty()) a.settings["tls_folder"] = a.tls_folder;
  const auto file = runtime::load_file(a.settings, a.config);
  if (!file) return file.failure();
  const auto* config = &file->cluster;
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

  agent_options options{{}, file->node};
  if (options.node.labels.host.empty()) options.node.labels.host = runtime::machine_label();
  auto& o = options.keeper;
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
  return options;
}

// What main's thread does, and until when.
class agent_loop {
 public:
  explicit agent_loop(const agent_options& options)
      : options_(options),
        keeper_(options.keeper),
        commands_([this] { keeper_.wake(); }),
        signals_(commands_, options.node.preemption.grace) {}

  int run();

 private:
  using clock = std::chrono::steady_clock;

  void obey(const node::command& c);
  void go(const node::leave& l);
  void end_if_due();
  std::chrono::milliseconds patience() const;
  node::node_options actor_options(const tls::identity_ptr& identity);

  const agent_options& options_;
  worker_keeper keeper_;
  node::command_queue commands_;
  const node::stop_signals signals_;  // before any other thread
  std::optional<node::leave> leaving_;
  caf::actor actor_;
  std::string refusal_;
  std::atomic<bool> is_refused_ = false;
};

void agent_loop::obey(const node::command& c) {
  if (const auto* k = std::get_if<kill_worker>(&c)) {
    if (keeper_.kill(k->worker)) log::warn("killed life " + short_name(k->worker) + ": " + k->why);
  } else if (const auto* s = std::get_if<stop_node>(&c)) {
    log::info("ends, and its workers with it: " + s->why);
    keeper_.stop();
  } else if (const auto* l = std::get_if<node::leave>(&c)) {
    go(*l);
  } else {
    keeper_.start_missing();
  }
}

// Of two notices the earlier deadline counts, and the reason that came with it.
void agent_loop::go(const node::leave& l) {
  keeper_.hold();
  if (leaving_ && leaving_->deadline <= l.deadline) return;
  leaving_ = l;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(l.deadline - clock::now());
  log::warn("leaves within " + std::to_string(left.count()) + " ms: " + l.why);
  caf::anon_send(actor_, l);
}

void agent_loop::end_if_due() {
  if (!leaving_ || keeper_.is_stopping()) return;
  if (keeper_.alive() == 0) {
    obey(stop_node{"no worker is left that could hand over anything"});
  } else if (clock::now() >= leaving_->deadline) {
    log::warn("its time is up, and its workers still hold something");
    obey(stop_node{leaving_->why});
  }
}

std::chrono::milliseconds agent_loop::patience() const {
  constexpr std::chrono::milliseconds idle = std::chrono::hours(1);
  if (!leaving_ || keeper_.is_stopping()) return idle;
  return std::max(std::chrono::milliseconds(0),
                  std::chrono::ceil<std::chrono::milliseconds>(leaving_->deadline - clock::now()));
}

node::node_options agent_loop::actor_options(const tls::identity_ptr& identity) {
  node::node_options agent;
  agent.hello.who = options_.keeper.node;
  agent.hello.name = options_.keeper.name;
  agent.hello.host = runtime::host_name();
  agent.hello.devices = options_.keeper.devices;
  agent.hello.pid = static_cast<std::uint32_t>(::getpid());
  agent.hello.labels = options_.node.labels;
  agent.coordinator = options_.keeper.coordinator;
  agent.identity = identity;
  agent.workers_alive = [this] { return keeper_.alive(); };
  agent.obey = [this](const node::command& c) { commands_.put(c); };
  agent.refused = [this](const std::string& why) {
    if (is_refused_.exchange(true)) return;
    refusal_ = why;
    commands_.put(stop_node{why});
  };
  return agent;
}

int agent_loop::run() {
  const auto identity = tls::load_if_any(options_.keeper.tls_folder, tls::role::node);
  if (!identity) return fail(identity.failure().message);
  keeper_.start_missing();
  const node::notice_watch notices(options_.node.preemption, [this](const node::notice& n) {
    commands_.put(node::leave{clock::now() + n.left, n.why});
  });
  runtime::actor_process process(*identity);
  const auto actor = process.system().spawn(node::agent, actor_options(*identity));
  actor_ = caf::actor_cast<caf::actor>(actor);

  while (!keeper_.is_over()) {
    for (auto& e : keeper_.look_after(patience())) caf::anon_send(actor_, node::worker_ended{std::move(e)});
    for (const auto& c : commands_.take()) obey(c);
    end_if_due();
  }
  actor_ = nullptr;
  runtime::end(actor);
  if (is_refused_) return fail(refusal_);
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
  node_config defaults;
  for (const auto& f : runtime::fields_of(defaults)) {
    const auto flag = f.flag.empty() ? f.key : f.flag;
    auto name = "--" + flag;
    std::replace(name.begin(), name.end(), '_', '-');
    app.add_option(name, a.settings[flag], f.why + " (" + f.name() + ")")
        ->type_name(f.unit.empty() ? "TEXT" : "MS");
  }
  app.footer(
      "SIGTERM: the workers hand over what they hold, then all end; a second one, or SIGINT: at once.\n"
      "Exit codes: 0 stopped by a signal, a notice or the coordinator, 1 failed or refused, 2 wrong command "
      "line.");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : exit_usage; }
  const auto options = prepare(a);
  return options ? agent_loop(*options).run() : fail(options.failure().message);
}
