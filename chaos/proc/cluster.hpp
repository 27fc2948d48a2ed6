// A cluster of real processes on this machine: a coordinator, node agents and their workers, on free ports
// and in a folder of its own. It is steered and watched through the admin RPC, as a person would, and hurt by
// signals.
//
//   chaos::cluster c;
//   c.start_coordinator();
//   c.start_node({.name = "a", .fault = "kill:12:vote"});
//   c.submit(chaos::tiny_job().text());
//   auto job = c.wait_finished();
//
// Whatever is awaited and does not come throws chaos::failure. When a cluster goes while an exception is
// under way, it prints the last lines of each process's log. When it is gone, so are all its processes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "chaos/proc/oracle.hpp"
#include "chaos/proc/process.hpp"
#include "coordinator/admin/client.hpp"

namespace perdura::chaos {

// A job file by its fields ("batch.slots" -> "8"), over the defaults of what it starts from.
class job_text {
 public:
  explicit job_text(std::map<std::string, std::string> fields) : fields_(std::move(fields)) {}
  job_text& set(const std::string& field, const std::string& value);
  std::string text() const;

 private:
  std::map<std::string, std::string> fields_;
};

// A few milliseconds a step: width 32, depth 1, 16 samples in 8 slots, 40 steps, a checkpoint every 10.
job_text tiny_job();

struct cluster_options {
  std::filesystem::path programs = program_folder();  // where perdura-coordinator and the others are
  std::filesystem::path folder{};                     // data and logs; empty: a temporary one
  std::string settings = quick_settings();            // of the cluster file
  bool keep_spans = false;                            // what each worker did when, in folder()/spans
  bool forget_failures = false;                       // do not print logs on failure
  bool tls = false;                                   // with a CA of its own, see certificates()
  std::string host = "127.0.0.1";                     // where the coordinator listens
  int network = -1;                                   // the coordinator's network namespace; -1: ours

  // The folder that the running program is in.
  static std::filesystem::path program_folder();
  // Heartbeats, leases and limits short enough for tests on a busy machine.
  static std::string quick_settings();
};

struct node_options {
  std::string name;
  unsigned devices = 1;
  std::string fault{};  // "kill:STEP:PHASE" or "stop:STEP:PHASE", for the first life of its first worker
  std::vector<std::string> more{};  // further words for its agent
  std::string join{};               // HOST:PORT; empty: the coordinator itself
  int network = -1;                 // its network namespace; -1: ours
};

class cluster {
 public:
  explicit cluster(cluster_options options = {});
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;
  ~cluster();

  // Comes back when it takes requests. A second start is a restart: same ports, same data.
  void start_coordinator();
  void kill_coordinator();
  void start_node(const node_options& node);
  void kill_node(const std::string& node);  // the agent; its workers die with it
  process& node(const std::string& name);   // the agent
  void kill_all();                          // SIGKILL to every process at once
  // Asks the coordinator to end the cluster; gives back whether every process ended within the limit.
  bool shut_down(milliseconds limit);

  void kill_worker(const std::string& worker);
  void stop_worker(const std::string& worker);
  void continue_worker(const std::string& worker);
  // Every process of this cluster that lives, also those whose parents died.
  std::vector<pid_t> processes() const;

  // The job's id. Throws when it is refused.
  std::string submit(const std::string& text);

  admin::cluster_status status();
  std::vector<admin::worker_info> workers();
  admin::worker_info worker(const std::string& name);
  admin::job_info job();  // the newest
  admin::job_info job(const std::string& id);
  std::vector<admin::event_info> events();
  std::vector<admin::step_info> steps();
  std::vector<admin::recovery_info> recoveries();
  std::vector<applied_step> applied() const { return read_traces(folder_ / "traces"); }
  admin::admin_api& admin();

  void wait_step(std::uint64_t step, milliseconds limit = default_limit);
  void wait_members(std::size_t count, milliseconds limit = default_limit);
  void wait_event(const std::string& kind, milliseconds limit = default_limit);
  // Throws when the job ends otherwise than finished.
  admin::job_info wait_finished(milliseconds limit = default_limit);
  // Each of several jobs by its id.
  admin::job_info wait_finished(const std::string& job, milliseconds limit = default_limit);
  // Until `reached` is true of a job that has not ended otherwise.
  void wait_job(const std::string& what, const std::string& job,
                const std::function<bool(const admin::job_info&)>& reached,
                milliseconds limit = default_limit);

  const std::filesystem::path& folder() const { return folder_; }
  const std::string& host() const { return options_.host; }
  std::uint16_t port() const { return port_; }
  std::string address() const { return options_.host + ":" + std::to_string(port_); }
  // With `tls`: the CA's folder, and the one with the certificates of all roles that all processes here use.
  std::filesystem::path authority() const { return folder_ / "pki"; }
  std::filesystem::path certificates() const { return folder_ / "pki" / "here"; }
  std::uint16_t admin_port() const { return admin_port_; }
  std::string logs(std::size_t lines) const;

  static constexpr milliseconds default_limit{60000};

 private:
  void signal_worker(const std::string& worker, int number);
  std::vector<std::string> environment() const;
  void make_certificates();
  template <class T>
  T ask(const std::string& what, const std::function<result<T>(admin::admin_api&)>& question);

  cluster_options options_;
  std::unique_ptr<temporary_folder> temporary_;
  std::filesystem::path folder_;
  std::string tag_;  // in the environment of every process of this cluster
  std::uint16_t port_ = 0;
  std::uint16_t admin_port_ = 0;
  unsigned starts_ = 0;
  std::unique_ptr<process> coordinator_;
  std::map<std::string, process> nodes_;
  std::unique_ptr<admin::admin_api> admin_;
};

}  // namespace perdura::chaos
