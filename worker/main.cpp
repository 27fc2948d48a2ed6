// perdura-worker: one device's worker. Started by the node agent; `--once` and `--describe` work without a
// cluster.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <future>

#include "actors/base/log.hpp"
#include "actors/base/version.hpp"
#include "actors/runtime/host.hpp"
#include "actors/runtime/incarnation.hpp"
#include "actors/runtime/log_sink.hpp"
#include "actors/runtime/system.hpp"
#include "actors/transport/tcp_links.hpp"
#include "worker/fault.hpp"
#include "worker/once.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/worker_actor.hpp"

using namespace perdura;

namespace {

constexpr int exit_refused = 4;  // fenced or refused: the agent starts a new life

struct arguments {
  std::string coordinator = "127.0.0.1:7400";
  std::string name = "worker";
  std::string node;
  std::string self;
  std::string host;  // empty: the address towards the coordinator
  std::string tls_folder;
  std::string log_folder;
  std::string fault;
};

int fail(const std::string& why) {
  log::error(why);
  std::fprintf(stderr, "perdura-worker: %s\n", why.c_str());
  return 1;
}

int run(const arguments& a) {
  const auto at = parse_endpoint(a.coordinator);
  if (!at) return fail(at.failure().message);
  const auto identity = tls::load_if_any(a.tls_folder, tls::role::worker);
  if (!identity) return fail(identity.failure().message);
  if (auto allowed = runtime::check_host(at->host, *identity != nullptr); !allowed)
    return fail(allowed.failure().message);
  const auto host = a.host.empty() ? runtime::local_address_towards(*at) : a.host;
  if (!host) return fail(host.failure().message);
  auto injected = a.fault.empty() ? result<worker::fault>(worker::fault{}) : worker::fault::parse(a.fault);
  if (!injected) return fail(injected.failure().message);

  // Signals are read below, by this thread alone.
  sigset_t quitting;
  sigemptyset(&quitting);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&quitting, s);
  pthread_sigmask(SIG_BLOCK, &quitting, nullptr);
  const int signals = ::signalfd(-1, &quitting, SFD_CLOEXEC);
  const int stopped = ::eventfd(0, EFD_CLOEXEC);

  worker::worker_actor_options options;
  options.shell.self = a.self.empty() ? runtime::random_incarnation() : parse_incarnation(a.self);
  if (options.shell.self.is_none()) return fail("--incarnation takes 32 hexadecimal digits");
  options.shell.node = parse_incarnation(a.node);
  options.shell.name = a.name;
  options.shell.injected = *injected;
  if (const char* folder = std::getenv("PERDURA_TRACE")) {
    options.shell.trace_folder = folder;
    std::filesystem::create_directories(folder);
  }
  if (const char* folder = std::getenv("PERDURA_SPANS")) options.shell.spans_folder = folder;
  options.coordinator = *at;
  options.identity = *identity;
  options.make_links = [self = options.shell.self, identity = *identity,
                        host = *host](transport::link_events events) {
    transport::tcp_options tcp;
    tcp.self = self;
    tcp.host = host;
    tcp.tls = identity;
    return transport::make_tcp_links(tcp, std::move(events));
  };
  options.stop = [stopped](const std::string& why) {
    log::warn("ends: " + why);
    const std::uint64_t one = 1;
    if (::write(stopped, &one, sizeof one) < 0) std::_Exit(exit_refused);
  };

  runtime::actor_process process(*identity);
  process.system().spawn(worker::worker, std::move(options));
  pollfd watched[2] = {{signals, POLLIN, 0}, {stopped, POLLIN, 0}};
  while (::poll(watched, 2, -1) < 0) {}
  // Nothing of a worker has to be put in order: what counts is with its peers or on disk.
  std::_Exit((watched[1].revents & POLLIN) != 0 ? exit_refused : 0);
}

}  // namespace

int main(int argc, char** argv) {
  worker::pin_numerics();  // first: it sets environment variables
  if (argc > 1 && std::string(argv[1]) == "--once") return worker::run_once(argc - 1, argv + 1);
  if (argc > 1 && std::string(argv[1]) == "--describe") return worker::run_describe(argc - 1, argv + 1);

  arguments a;
  CLI::App app{
      "Trains and samples on one device. Started by perdura-node; --once and --describe work without a "
      "cluster."};
  app.set_version_flag("--version", version_text("perdura-worker"));
  app.add_option("--coordinator", a.coordinator, "where the coordinator listens, HOST:PORT")
      ->capture_default_str();
  app.add_option("--name", a.name, "for people, NODE/DEVICE")->capture_default_str();
  app.add_option("--node", a.node, "the agent's incarnation");
  app.add_option("--incarnation", a.self, "this life's; default: random");
  app.add_option("--host", a.host,
                 "this machine's address, for the links of others; default: the one "
                 "that the coordinator sees");
  app.add_option("--tls", a.tls_folder,
                 "folder of the worker's certificate; default: no TLS, loopback alone");
  app.add_option("--log", a.log_folder, "folder of the log file; default: standard error");
  app.add_option("--fault", a.fault, "for tests: kill:STEP:PHASE or stop:STEP:PHASE");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }

  runtime::log_options log;
  log.role = "worker " + a.name;
  auto file = a.name;
  std::replace(file.begin(), file.end(), '/', '-');
  if (!a.log_folder.empty()) log.file = a.log_folder + "/worker-" + file + ".log";
  if (const auto opened = runtime::open_log(log); !opened) return fail(opened.failure().message);
  return run(a);
}
