// perdura-coordinator: its durable memory, the actor on the cluster's port, the admin server beside it.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/config_file.hpp"
#include "actors/runtime/folders.hpp"
#include "actors/runtime/log_sink.hpp"
#include "actors/runtime/system.hpp"
#include "coordinator/admin/server.hpp"
#include "coordinator/admin_bridge.hpp"
#include "coordinator/coordinator_actor.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/object_folder.hpp"
#include "storage/s3/tiers.hpp"

using namespace perdura;
namespace fs = std::filesystem;

namespace {

// Nodes have told their workers to end; they get this long before the coordinator goes.
constexpr int shutdown_ms = 500;

int fail(const std::string& why) {
  log::error(why);
  std::fprintf(stderr, "perdura-coordinator: %s\n", why.c_str());
  return 1;
}

// What the store has lost of jobs that are to go on comes from the first tier that has it. (Opening the index
// then finds it.)
result<void> fetch_missing(const coordinator::journal& memory, const storage::object_folder& store,
                           const storage::tier_set& tiers) {
  const auto jobs = memory.jobs();
  if (!jobs) return jobs.failure();
  for (const auto& job : *jobs) {
    if (job.stage != coordinator::job_stage::active && job.stage != coordinator::job_stage::waiting) continue;
    const auto keys = storage::list_checkpoints(store, job.id);
    if (!keys) return keys.failure();
    std::optional<storage::checkpoint_key> whole;
    for (const auto& key : *keys) {
      auto reader = storage::checkpoint_reader::open(store.root(), key);
      if (!reader || !reader->check_headers()) continue;
      whole = key;
      break;
    }
    tiers.fetch_newest(job.id, whole);
  }
  return {};
}

int run(cluster_config config, const runtime::folders& folders) {
  sigset_t quitting;
  sigemptyset(&quitting);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&quitting, s);
  pthread_sigmask(SIG_BLOCK, &quitting, nullptr);
  const int signals = ::signalfd(-1, &quitting, SFD_CLOEXEC);
  const int ended = ::eventfd(0, EFD_CLOEXEC);

  const fs::path data = folders.data;
  const storage::object_folder store(data / "store");
  auto memory = coordinator::journal::open(data / "log");
  if (!memory) return fail(memory.failure().message);
  caf::actor actor;
  auto tiers = storage::tier_set::make(config.tiers, store.root(), [&actor](const storage::tier_event& e) {
    caf::anon_send(actor, coordinator::here{[e](coordinator::coordinator_shell& c) { c.tier_said(e); }});
  });
  if (!tiers) return fail(tiers.failure().message);
  if (!config.tiers.empty())
    if (const auto fetched = fetch_missing(**memory, store, **tiers); !fetched)
      return fail(fetched.failure().message);
  auto keeper = coordinator::checkpoint_keeper::open(
      store.root(), data / "index",
      [&set = **tiers](const storage::checkpoint_key& key) { set.committed(key); });
  if (!keeper) return fail(keeper.failure().message);
  const auto term = storage::claim_term(store, std::string(version_text("perdura-coordinator")));
  if (!term) return fail(term.failure().message);

  const auto identity = tls::load_if_any(config.tls_folder, tls::role::coordinator);
  if (!identity) return fail(identity.failure().message);
  runtime::actor_process process(*identity);
  auto options = std::make_shared<coordinator::coordinator_actor_options>();
  std::unique_ptr<admin::server> admin_server;
  std::atomic<admin::server*> followers{nullptr};
  options->identity = *identity;
  options->memory = std::move(*memory);
  options->keeper = std::move(*keeper);
  options->events_grew = [&followers] {
    if (auto* s = followers.load()) s->events_grew();
  };
  options->end = [ended] {
    const std::uint64_t one = 1;
    if (::write(ended, &one, sizeof one) < 0) std::_Exit(1);
  };
  options->failed = [](const error& e) { std::_Exit(fail(e.message)); };

  // The ports are taken first: what the actor logs and shows names them.
  coordinator::admin_bridge bridge([&actor](std::function<void(coordinator::coordinator_shell&)> what) {
    caf::anon_send(actor, coordinator::here{std::move(what)});
  });
  admin::server_options admin_options;
  admin_options.host = config.host;
  admin_options.port = config.admin_port;
  admin_options.tls = *identity;
  options->shell = {config,      store.root().string(),
                    folders.log, folders.data,
                    *term,       [&set = **tiers] { return set.status(); }};
  auto typed = process.system().spawn<caf::detached>(coordinator::coordinator, options);
  actor = caf::actor_cast<caf::actor>(typed);
  auto port = runtime::publish(process.system(), caf::actor_cast<wire::coordinator_actor>(typed),
                               {config.host, config.port});
  if (!port) return fail(port.failure().message);
  auto started = admin::server::start(bridge, admin_options);
  if (!started) return fail(started.failure().message);
  admin_server = std::move(*started);
  (*tiers)->start();
  followers = admin_server.get();
  caf::anon_send(actor,
                 coordinator::here{[port = *port, admin = admin_server->port()](
                                       coordinator::coordinator_shell& c) { c.listens_on(port, admin); }});
  std::printf("ready port=%u admin=%u\n", *port, admin_server->port());
  std::fflush(stdout);

  pollfd watched[2] = {{signals, POLLIN, 0}, {ended, POLLIN, 0}};
  while (::poll(watched, 2, -1) < 0) {}
  if ((watched[1].revents & POLLIN) != 0) ::poll(nullptr, 0, shutdown_ms);
  log::info("ends");
  followers = nullptr;
  admin_server.reset();
  // All that counts is durable; a worker's next word finds the next term.
  std::_Exit(0);
}

}  // namespace

int main(int argc, char** argv) {
  std::string file, data, logs, tls_folder;
  int port = -1, admin_port = -1;
  CLI::App app{"Supervises a cluster: decides who trains what, and writes down why."};
  app.set_version_flag("--version", version_text("perdura-coordinator"));
  app.add_option("--config", file, "the cluster's file; default: the first found, see perdura --help");
  app.add_option("--port", port, "for nodes and workers; 0: any free one; default 7400");
  app.add_option("--admin-port", admin_port, "for perdura's commands; 0: any free one; default 7401");
  app.add_option("--tls", tls_folder, "folder of this machine's certificates; default: as configured");
  app.add_option("--data", data, "folder of the log and the checkpoints");
  app.add_option("--log", logs, "folder of the log file; default: standard error");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }

  runtime::text_map flags;
  if (port >= 0) flags["port"] = std::to_string(port);
  if (admin_port >= 0) flags["admin_port"] = std::to_string(admin_port);
  if (!tls_folder.empty()) flags["tls_folder"] = tls_folder;
  if (!data.empty()) flags["data_folder"] = data;
  if (!logs.empty()) flags["log_folder"] = logs;
  auto config = runtime::load_cluster(flags, file);
  if (!config) return fail(config.failure().message);
  auto folders = runtime::choose_folders(*config);
  if (!folders) return fail(folders.failure().message);
  if (const auto made = runtime::make_folders(*folders); !made) return fail(made.failure().message);
  runtime::log_options log;
  log.role = "coordinator";
  log.bytes_max = config->log_bytes_max;
  log.files = config->log_files;
  if (!logs.empty() || !config->log_folder.empty()) log.file = folders->log + "/coordinator.log";
  if (const auto opened = runtime::open_log(log); !opened) return fail(opened.failure().message);
  return run(*config, *folders);
}
