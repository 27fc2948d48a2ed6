#include "actors/runtime/system.hpp"

#include <caf/actor_registry.hpp>
#include <caf/scoped_actor.hpp>

#include "actors/runtime/bounded_middleman.hpp"
#include "actors/runtime/host.hpp"
#include "actors/wire/compat.hpp"

namespace perdura::runtime {

namespace {
constexpr std::chrono::seconds publish_timeout{10};
}  // namespace

system_config::system_config(tls::identity_ptr identity) : identity_(std::move(identity)) {
  wire::add_message_types(*this);
  load<bounded_middleman>();
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", scheduler_threads);
  // A stranger's CAF is turned away in the handshake.
  set("middleman.app-identifiers", std::vector<std::string>{"perdura"});
  set("middleman.heartbeat-interval", caf::timespan{connection_heartbeat});
  set("middleman.connection-timeout", caf::timespan{connection_timeout});
  set("logger.file-verbosity", caf::atom("quiet"));
  set("logger.console", caf::atom("none"));
}

actor_process::actor_process(tls::identity_ptr identity) : config_(std::move(identity)), system_(config_) {
  refuse_remote_control(system_);
}

bool has_tls(caf::actor_system& system) { return connector(system) != system.middleman().actor_handle(); }

caf::io::middleman_actor connector(caf::actor_system& system) {
  const auto* ours = dynamic_cast<const bounded_middleman*>(&system.middleman());
  if (ours != nullptr && ours->tls_connector()) return ours->tls_connector();
  return system.middleman().actor_handle();
}

void refuse_remote_control(caf::actor_system& system) {
  // Peers reach these by name through the registry; CAF itself keeps its own pointers to them.
  system.registry().erase(caf::atom("SpawnServ"));
  system.registry().erase(caf::atom("ConfigServ"));
}

result<std::uint16_t> publish(caf::actor_system& system, const caf::strong_actor_ptr& actor,
                              std::set<std::string> interface, const endpoint& at) {
  if (auto allowed = check_host(at.host, has_tls(system)); !allowed) return allowed.failure();
  const std::string address = at.host == "localhost" ? "127.0.0.1" : at.host;
  result<std::uint16_t> port = error{errc::internal, ""};
  caf::scoped_actor self{system};
  // SO_REUSEADDR: a coordinator that is started again takes its port at once.
  self->request(connector(system), publish_timeout, caf::publish_atom_v, at.port, actor, std::move(interface),
                address, true)
      .receive([&](std::uint16_t bound) { port = bound; },
               [&](const caf::error& e) {
                 port = error{errc::unavailable,
                              "cannot listen on " + address + ":" + std::to_string(at.port) + ": " +
                                  system.render(e) +
                                  "; is another one running? `ss -ltnp` shows who has the port"};
               });
  return port;
}

}  // namespace perdura::runtime
