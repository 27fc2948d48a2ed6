// Several machines with addresses of their own, over TLS, on a network that is cut, slowed down and mended.
// After each of it the cluster ends with the bits of an undisturbed run. Where no network namespaces can be
// made (that needs root and iproute2) nothing is tested, and it says so.
#include <iostream>

#include "chaos/proc/network.hpp"
#include "chaos/proc/proxy.hpp"
#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

// Long enough to be disturbed in mid-run, also where training goes on without its coordinator.
constexpr std::uint64_t long_steps = 400;
chaos::job_text long_job() {
  return chaos::tiny_job()
      .set("steps", std::to_string(long_steps))
      .set("model.width", "64")
      .set("model.depth", "2")
      .set("checkpoint.interval_steps", "100");
}

const std::string& long_hash() {
  static const std::string hash = undisturbed_hash(long_job());
  return hash;
}

bool is_skipped() {
  static const std::string why = chaos::network::why_not();
  if (why.empty()) return false;
  std::cerr << "SKIPPED: no network of several machines can be made here: " << why << std::endl;
  return true;
}

// A coordinator and machines "a", "b", ... with a worker each, all on hosts of their own.
struct machines {
  explicit machines(std::initializer_list<const char*> names) {
    net.add("c");
    chaos::cluster_options options;
    options.tls = true;
    options.host = net.address("c");
    options.network = net.namespace_of("c");
    // What is tested is who is let go, not how soon: a busy machine must not let go of the others.
    options.settings =
        "heartbeat_ms = 100\nlease_ms = 2000\nstep_timeout_ms = 10000\njoin_timeout_ms = 30000\n"
        "gather_ms = 500\n";
    cluster.emplace(options);
    cluster->start_coordinator();
    for (const auto* name : names) {
      net.add(name);
      start(name);
    }
    chaos::wait_until("all workers to register", chaos::cluster::default_limit,
                      [&] { return cluster->workers().size() == names.size(); });
  }
  void start(const std::string& name, const std::string& join = {}) {
    cluster->start_node(
        {.name = name, .devices = 1, .fault = {}, .join = join, .network = net.namespace_of(name)});
  }
  void submit_and_run_to(std::uint64_t step) {
    cluster->submit(long_job().text());
    cluster->wait_step(step);
  }
  void check_bits() {
    const auto job = cluster->wait_finished(end_limit);
    CHECK(job.final_hash == long_hash());
    check_history(*cluster, long_steps);
  }

  static constexpr milliseconds end_limit{180000};
  chaos::network net;  // goes last
  std::optional<chaos::cluster> cluster;
};

}  // namespace

TEST_CASE("machines with addresses of their own train over TLS") {
  if (is_skipped()) return;
  machines m({"a", "b", "d"});
  m.submit_and_run_to(1);
  m.check_bits();
}

TEST_CASE("a whole machine that is gone costs its lease, and no bits") {
  if (is_skipped()) return;
  machines m({"a", "b", "d"});
  m.submit_and_run_to(20);
  m.net.unplug("b");
  m.check_bits();
  CHECK(m.cluster->job().recoveries >= 1);
}

TEST_CASE("a machine whose cable is out for a moment comes back as a new life") {
  if (is_skipped()) return;
  machines m({"a", "b"});
  m.submit_and_run_to(20);
  const auto before = m.cluster->worker("b/0").who;
  m.net.unplug("b");
  chaos::wait_until("b to be given up", chaos::cluster::default_limit, [&] {
    const auto all = m.cluster->workers();
    return std::none_of(all.begin(), all.end(), [&](const auto& w) {
      return w.who == before && w.state != admin::worker_state::dead &&
             w.state != admin::worker_state::fenced;
    });
  });
  m.net.plug("b");
  m.check_bits();
}

TEST_CASE("a worker that the coordinator cannot reach, though its links work, is let go") {
  if (is_skipped()) return;
  machines m({"a", "b", "d"});
  m.submit_and_run_to(20);
  const auto cut = m.cluster->worker("b/0").who;
  m.net.cut("c", "b");
  m.cluster->wait_event("worker_lost");
  m.net.mend("c", "b");
  m.check_bits();
  for (const auto& w : m.cluster->workers())
    if (w.who == cut) CHECK(w.state != admin::worker_state::member);
}

TEST_CASE("what one machine sends to another vanishes, one way, and the bits stay") {
  if (is_skipped()) return;
  machines m({"a", "b", "d"});
  m.submit_and_run_to(20);
  m.net.cut_one_way("b", "c");
  m.cluster->wait_event("worker_lost");
  m.net.mend("b", "c");
  m.check_bits();
}

TEST_CASE(
    "workers that cannot reach each other, though the coordinator reaches both, end with the same bits") {
  if (is_skipped()) return;
  machines m({"a", "b", "d"});
  m.submit_and_run_to(20);
  m.net.cut("a", "b");
  SUBCASE("for a moment") {
    chaos::wait_until("a recovery", chaos::cluster::default_limit,
                      [&] { return m.cluster->job().recoveries >= 1; });
    m.net.mend("a", "b");
  }
  SUBCASE("for good") {}
  m.check_bits();
}

TEST_CASE("a slow line changes when, not what") {
  if (is_skipped()) return;
  machines m({"a", "b"});
  m.net.limit("a", "8mbit");
  m.cluster->submit(chaos::tiny_job().text());
  const auto end = m.cluster->wait_finished();
  CHECK(end.final_hash == tiny_hash());
  check_history(*m.cluster, 40);
}

TEST_CASE("a node whose line to the coordinator is long and lossy takes part, also when it breaks") {
  if (is_skipped()) return;
  machines m({"a"});
  // On the bridge, where all machines find it.
  chaos::proxy line({m.cluster->host(), m.cluster->port()},
                    {.delay = milliseconds(20), .loss = 0.02, .again = milliseconds(100), .seed = 3},
                    "192.0.2.1");
  m.net.add("b");
  m.start("b", line.local().host + ":" + std::to_string(line.local().port));
  chaos::wait_until("both workers", chaos::cluster::default_limit,
                    [&] { return m.cluster->workers().size() == 2; });
  m.submit_and_run_to(20);
  line.break_all();
  m.check_bits();
  CHECK(line.connections() >= 4);  // two for each of node and worker, and one again
}
