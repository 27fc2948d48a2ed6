// `perdura up` owns its cluster: however it ends, no process of it is left.
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/integration/support.hpp"

using namespace perdura;
using namespace perdura::integration;

namespace {

constexpr milliseconds start_limit{60000};
constexpr milliseconds end_limit{20000};
constexpr std::size_t all_processes = 6;  // up, coordinator, two nodes, two workers

class local_cluster {
 public:
  explicit local_cluster(const chaos::job_text& job)
      : folder_("perdura-up"), tag_("PERDURA_CHAOS=up-" + folder_.path().filename().string()) {
    auto job_file = folder_.path() / "job.toml";
    auto config = folder_.path() / "cluster.toml";
    std::ofstream(job_file) << job.text();
    std::ofstream(config) << chaos::cluster_options::quick_settings();
    up_.emplace(chaos::launch{.program = chaos::cluster_options::program_folder() / "perdura",
                              .arguments = {"up", "--workers", "2", "--nodes", "2", "--job", job_file,
                                            "--config", config, "--data", folder_.path() / "data", "--log",
                                            folder_.path() / "logs", "--port", "0", "--admin-port", "0"},
                              .environment = {tag_},
                              .output = folder_.path() / "up.out"});
  }
  ~local_cluster() {
    up_.reset();
    for (pid_t left : living()) ::kill(left, SIGKILL);
  }
  local_cluster(const local_cluster&) = delete;
  local_cluster& operator=(const local_cluster&) = delete;

  chaos::process& up() { return *up_; }
  std::vector<pid_t> living() const { return chaos::processes_with(tag_); }
  std::string output() const { return chaos::tail(folder_.path() / "up.out", 20); }
  void wait_started() {
    chaos::wait_until("all processes of perdura up", start_limit,
                      [&] { return living().size() >= all_processes; });
  }
  void wait_empty() {
    chaos::wait_until("no process to be left", end_limit, [&] { return living().empty(); });
  }

 private:
  chaos::temporary_folder folder_;
  std::string tag_;
  std::optional<chaos::process> up_;
};

chaos::job_text endless() { return chaos::tiny_job().set("steps", "1000000"); }

}  // namespace

TEST_CASE("a cluster ends with its job, and no process is left") {
  local_cluster c(chaos::tiny_job());
  auto code = c.up().wait(chaos::cluster::default_limit);
  CHECK_MESSAGE(code == 0, c.output());
  CHECK(c.living().empty());
}

TEST_CASE("Ctrl-C ends a cluster, and no process is left") {
  local_cluster c(endless());
  c.wait_started();
  c.up().signal(SIGINT);
  CHECK_MESSAGE(c.up().wait(end_limit) == 130, c.output());
  CHECK(c.living().empty());
}

TEST_CASE("a cluster whose perdura up is killed dies with it") {
  local_cluster c(endless());
  c.wait_started();
  c.up().signal(SIGKILL);
  CHECK(c.up().wait(end_limit) == 128 + SIGKILL);
  c.wait_empty();
}
