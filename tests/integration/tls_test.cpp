// Clusters over TLS: they end with the same bits, and whoever does not belong is turned away by name.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>

#include "actors/tls/authority.hpp"
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;
using tls::role;

namespace {

namespace fs = std::filesystem;

chaos::cluster_options over_tls() {
  chaos::cluster_options o;
  o.tls = true;
  return o;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void until_logged(const chaos::cluster& c, const std::string& file, const std::string& words) {
  chaos::wait_until(file + " to say: " + words, chaos::cluster::default_limit,
                    [&] { return text_of(c.folder() / "logs" / file).find(words) != std::string::npos; });
}

// A folder of certificates, each of its own kind of wrong.
fs::path folder_with(const fs::path& authority, const fs::path& out,
                     const std::vector<tls::issue_options>& which) {
  for (const auto& options : which) {
    const auto made = tls::issue(authority, options, out, true);
    REQUIRE_MESSAGE(made.has_value(), (made ? "" : made.failure().message));
  }
  return out;
}

// One process that does a single thing as somebody it is not; what it printed.
std::string rogue(const chaos::cluster& c, const std::string& mode, const fs::path& certificates = {},
                  role as = role::worker) {
  const auto output = c.folder() / ("rogue-" + mode);
  chaos::launch what{.program = ROGUE_PEER,
                     .arguments = {std::to_string(c.port()), mode},
                     .environment = {},
                     .output = output,
                     .network = -1};
  if (!certificates.empty())
    what.arguments.insert(what.arguments.end(), {certificates.string(), to_string(as)});
  chaos::process peer(what);
  REQUIRE_MESSAGE(peer.wait(chaos::cluster::default_limit).has_value(), "the rogue peer does not end");
  return text_of(output);
}

bool says(const std::string& text, const char* words) { return text.find(words) != std::string::npos; }

}  // namespace

TEST_CASE("a cluster over TLS that loses a worker ends with the bits of one without") {
  chaos::cluster c(over_tls());
  start(c, {{.name = "a"}, {.name = "b", .fault = "kill:15:exchange"}});
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  check_history(c, 40);
}

TEST_CASE("a coordinator over TLS that dies is found again by its nodes and workers") {
  auto job = chaos::tiny_job().set("steps", "400");
  chaos::cluster c(over_tls());
  start(c, {{.name = "a"}, {.name = "b"}});
  c.submit(job.text());
  c.wait_step(10);
  c.kill_coordinator();
  c.start_coordinator();
  const auto end = c.wait_finished();
  CHECK(end.final_hash == undisturbed_hash(job));
}

TEST_CASE("who is not of the cluster is refused at the coordinator's port and named in its log") {
  chaos::cluster c(over_tls());
  start(c, {{.name = "a"}});
  const auto pki = c.authority();

  SUBCASE("a foreign CA's certificate") {
    const auto other = c.folder() / "other";
    REQUIRE(tls::make_authority(other, false).has_value());
    const auto folder = folder_with(other, other / "x", {{.who = {role::worker, "x"}, .hosts = {}}});
    CHECK(says(rogue(c, "hello", folder), "cannot"));
    until_logged(c, "coordinator.log", "refused a connection from 127.0.0.1");
  }
  SUBCASE("an expired certificate") {
    const auto folder = folder_with(pki, pki / "old",
                                    {{.who = {role::worker, "old"},
                                      .hosts = {},
                                      .lasts = std::chrono::hours(1),
                                      .begins = -std::chrono::hours(2)}});
    CHECK(says(rogue(c, "hello", folder), "cannot"));
    until_logged(c, "coordinator.log", "refused a connection from 127.0.0.1");
  }
  SUBCASE("a client without TLS, and garbage") {
    CHECK(says(rogue(c, "request"), "cannot"));
    rogue(c, "garbage");
    until_logged(c, "coordinator.log", "refused a connection from 127.0.0.1");
  }
  SUBCASE("another role's certificate") {
    const auto folder = folder_with(
        pki, pki / "x", {{.who = {role::admin, "x"}, .hosts = {}}, {.who = {role::node, "x"}, .hosts = {}}});
    CHECK(says(rogue(c, "hello", folder, role::admin), "cannot"));
    until_logged(c, "coordinator.log", "it shows the certificate of admin x, which may not join");
    CHECK(says(rogue(c, "hello", folder, role::node), "certificate of node x, not of a worker"));
    until_logged(c, "coordinator.log", "certificate of node x, not of a worker");
  }
  SUBCASE("a worker that shows no proof, or speaks for another's life") {
    CHECK(says(rogue(c, "unproven", c.certificates()), "shows no certificate"));
    rogue(c, "impostor", c.certificates());
    until_logged(c, "coordinator.log", "has not proved that it may");
  }

  // And whoever does belong has not noticed.
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
}

TEST_CASE("whoever connects and hangs up, or talks nonsense, ends nobody else's connection") {
  chaos::cluster c(over_tls());
  start(c, {{.name = "a"}, {.name = "b"}});
  const std::string nonsense(2000, 'x');
  for (int i = 0; i < 200; ++i) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(c.port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0);
    if (i % 2 == 0) static_cast<void>(::send(fd, nonsense.data(), nonsense.size(), MSG_NOSIGNAL));
    ::close(fd);
  }
  c.submit(chaos::tiny_job().text());
  const auto end = c.wait_finished();
  CHECK(end.final_hash == tiny_hash());
  for (const char* file : {"node-a.log", "node-b.log", "worker-a-0.log", "worker-b-0.log"})
    CHECK_MESSAGE(!says(text_of(c.folder() / "logs" / file), "connection to the coordinator broke"), file);
}

TEST_CASE("a node does not start with a certificate that is wrong, and says which") {
  chaos::cluster c(over_tls());
  c.start_coordinator();
  const auto folder =
      folder_with(c.authority(), c.authority() / "half", {{.who = {role::node, "half"}, .hosts = {}}});
  const auto output = c.folder() / "node.out";
  chaos::process node(chaos::launch{.program = chaos::cluster_options::program_folder() / "perdura-node",
                                    .arguments = {"--join", c.address(), "--name", "half", "--tls",
                                                  folder.string(), "--log", (c.folder() / "logs").string()},
                                    .environment = {},
                                    .output = output,
                                    .network = -1});
  CHECK(node.wait(chaos::cluster::default_limit) == 1);
  CHECK(says(text_of(output), "worker.pem is missing"));
}

TEST_CASE("a cluster's command line is served with an admin's certificate alone") {
  chaos::cluster c(over_tls());
  c.start_coordinator();
  const auto perdura = [&](const std::vector<std::string>& words) {
    const auto output = c.folder() / "perdura.out";
    std::error_code ignored;
    fs::remove(output, ignored);
    std::vector<std::string> all{"--admin", c.host() + ":" + std::to_string(c.admin_port()), "status"};
    all.insert(all.end(), words.begin(), words.end());
    chaos::process p(chaos::launch{.program = chaos::cluster_options::program_folder() / "perdura",
                                   .arguments = all,
                                   .environment = {"PERDURA_CONFIG=/dev/null"},
                                   .output = output,
                                   .network = -1});
    const auto code = p.wait(chaos::cluster::default_limit);
    return std::pair(code.value_or(-1), text_of(output));
  };
  CHECK(perdura({"--tls", c.certificates().string()}).first == 0);
  const auto plain = perdura({});
  CHECK(plain.first == 3);
  CHECK_MESSAGE(says(plain.second, "set tls_folder"), plain.second);
  until_logged(c, "coordinator.log", "admin: refused a client from 127.0.0.1");
}
