#include "coordinator/console/up.hpp"

#include <signal.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "coordinator/console/children.hpp"
#include "coordinator/console/launch.hpp"
#include "coordinator/console/progress.hpp"
#include "coordinator/console/session.hpp"
#include "coordinator/console/tables.hpp"

namespace perdura::console {

namespace {

using namespace std::chrono_literals;

constexpr auto coordinator_limit = 15s;  // to listen
constexpr auto shutdown_limit = 8s;      // for all to end by themselves
constexpr auto terminate_limit = 3s;     // after SIGINT
constexpr auto poll_interval = 50ms;
constexpr std::size_t tail_lines = 15;

volatile std::sig_atomic_t stop_signal = 0;
volatile std::sig_atomic_t stop_count = 0;
void note_stop(int number) {
  stop_signal = number;
  stop_count = stop_count + 1;
}

bool is_stopped() { return stop_count > 0; }

std::string tail(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > tail_lines) lines.erase(lines.begin());
  }
  std::string text;
  for (const auto& line : lines) text += "\n  " + line;
  return text;
}

// The line that the coordinator prints once it listens: "ready port=P admin=P".
struct ready_ports {
  std::uint16_t port = 0;
  std::uint16_t admin = 0;
};

std::optional<ready_ports> find_ready(const std::filesystem::path& output) {
  std::ifstream in(output);
  for (std::string line; std::getline(in, line) && !in.eof();) {
    unsigned port = 0;
    unsigned admin = 0;
    if (std::sscanf(line.c_str(), "ready port=%u admin=%u", &port, &admin) == 2 && port < 65536 &&
        admin < 65536)
      return ready_ports{static_cast<std::uint16_t>(port), static_cast<std::uint16_t>(admin)};
  }
  return std::nullopt;
}

// Where what listens on `host` is reached from this machine.
std::string reachable(const std::string& host) {
  return host == "0.0.0.0" || host == "::" || host == "localhost" ? "127.0.0.1" : host;
}

class local_cluster {
 public:
  local_cluster(const up_options& options, progress_view& view) : options_(options), view_(view) {}

  result<void> start_coordinator();
  result<void> start_nodes();
  result<void> wait_for_workers();
  result<std::string> submit();
  // Until the job has ended, or without one until we are told to stop.
  result<std::optional<admin::job_info>> follow(const std::string& job);
  void end();

 private:
  result<void> look_after();
  std::string address(std::uint16_t port) const;

  const up_options& options_;
  progress_view& view_;
  children children_;
  ready_ports ports_;
  std::optional<session> session_;
};

std::string local_cluster::address(std::uint16_t port) const {
  const auto host = reachable(options_.host);
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

result<void> local_cluster::start_coordinator() {
  auto program = find_program("perdura-coordinator");
  if (!program) return program.failure();
  std::vector<std::string> arguments{"--log", options_.log_folder.string()};
  auto add = [&](const char* flag, const std::string& text) {
    if (!text.empty()) arguments.insert(arguments.end(), {flag, text});
  };
  add("--config", options_.config_file);
  add("--data", options_.data_folder);
  add("--tls", options_.tls_folder);
  if (options_.port >= 0) add("--port", std::to_string(options_.port));
  if (options_.admin_port >= 0) add("--admin-port", std::to_string(options_.admin_port));
  const auto output = options_.log_folder / "coordinator.out";
  if (auto r = children_.start("coordinator", *program, arguments, output); !r) return r;
  const auto until = std::chrono::steady_clock::now() + coordinator_limit;
  while (!is_stopped()) {
    if (auto ready = find_ready(output)) {
      ports_ = *ready;
      session_.emplace(endpoint{reachable(options_.host), ports_.admin}, options_.tls);
      view_.say("coordinator ready: --admin " + address(ports_.admin) + ", nodes join " +
                address(ports_.port) + ", logs in " + options_.log_folder.string());
      return {};
    }
    if (auto r = look_after(); !r) return r;
    if (std::chrono::steady_clock::now() > until)
      return error{errc::timeout, "the coordinator was not ready in time; its output:" + tail(output)};
    std::this_thread::sleep_for(poll_interval);
  }
  return {};
}

result<void> local_cluster::start_nodes() {
  auto program = find_program("perdura-node");
  if (!program) return program.failure();
  const auto nodes = std::min(options_.nodes, options_.workers);
  for (std::uint32_t i = 0; i < nodes; ++i) {
    const auto name = "node-" + std::to_string(i + 1);
    const auto devices = options_.workers / nodes + (i < options_.workers % nodes ? 1 : 0);
    std::vector<std::string> arguments{
        "--join", address(ports_.port),         "--name",       name, "--devices", std::to_string(devices),
        "--log",  options_.log_folder.string(), "--host-label", name};  // as if each were a machine
    if (!options_.config_file.empty()) arguments.insert(arguments.end(), {"--config", options_.config_file});
    if (!options_.tls_folder.empty()) arguments.insert(arguments.end(), {"--tls", options_.tls_folder});
    auto r = children_.start(name, *program, arguments, options_.log_folder / (name + ".out"));
    if (!r) return r;
  }
  return {};
}

// The coordinator's end is ours; a node's is what the cluster is made for.
result<void> local_cluster::look_after() {
  for (const auto& c : children_.reap()) {
    const auto how = c.name + " " + how_it_ended(*c.status);
    if (c.name == "coordinator")
      return error{errc::unavailable, "the " + how + "; its output:" + tail(c.output)};
    view_.say(how + "; its output is in " + c.output.string());
  }
  return {};
}

result<void> local_cluster::wait_for_workers() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(options_.ready_s);
  std::size_t joined = 0;
  while (!is_stopped()) {
    if (auto r = look_after(); !r) return r;
    auto api = session_->open();
    if (!api) return api.failure();
    auto workers = (*api)->workers();
    if (!workers) return workers.failure();
    joined = static_cast<std::size_t>(std::count_if(workers->begin(), workers->end(), [](const auto& w) {
      return w.state != admin::worker_state::dead && w.state != admin::worker_state::fenced;
    }));
    if (joined >= options_.workers) {
      view_.say(std::to_string(joined) + (joined == 1 ? " worker has joined" : " workers have joined"));
      return {};
    }
    if (std::chrono::steady_clock::now() > until)
      return error{errc::timeout, "only " + std::to_string(joined) + " of " +
                                      std::to_string(options_.workers) + " workers joined within " +
                                      std::to_string(options_.ready_s) + " s; see the logs in " +
                                      options_.log_folder.string()};
    std::this_thread::sleep_for(poll_interval);
  }
  return {};
}

result<std::string> local_cluster::submit() {
  std::ifstream file(options_.job_file, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) return error{errc::io, "cannot read the job file " + options_.job_file};
  auto api = session_->open();
  if (!api) return api.failure();
  auto answer = (*api)->submit(text.str(), options_.job_file);
  if (!answer) return answer.failure();
  if (answer->errors.empty()) return answer->job;
  std::string all = "the job was refused:";
  for (const auto& line : answer->errors) all += "\n  " + line;
  return error{errc::invalid_argument, all};
}

result<std::optional<admin::job_info>> local_cluster::follow(const std::string& job) {
  std::optional<admin::job_info> last;
  std::string shown_end;
  while (!is_stopped()) {
    if (auto r = look_after(); !r) return r.failure();
    auto api = session_->open();
    if (!api) return api.failure();
    auto now = find_job(**api, job);
    if (now) {
      last = *now;
      auto workers = (*api)->workers();
      if (!workers) return workers.failure();
      // Without a job of our own there may be many, one after the other: the end of each is said once.
      const auto end = has_ended(now->state) ? now->id : "";
      if (end.empty() || end != shown_end) view_.show(*now, count_members(*workers));
      shown_end = end;
      if (!job.empty() && !end.empty()) return last;
    } else if (now.failure().code != errc::not_found) {
      return now.failure();
    }
    std::this_thread::sleep_for(5 * poll_interval);
  }
  return last;
}

void local_cluster::end() {
  if (session_ && children_.find("coordinator") != nullptr && !children_.find("coordinator")->status) {
    if (auto api = session_->open(); api && (*api)->shutdown()) {
      const auto stops = stop_count;  // another Ctrl-C: do not wait
      for (auto waited = 0ms; waited < shutdown_limit && stop_count == stops; waited += poll_interval)
        if (children_.wait_all(poll_interval)) break;
    }
  }
  children_.end_all(terminate_limit);
}

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = note_stop;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaction(number, &action, nullptr);
}

result<std::optional<admin::job_info>> run(local_cluster& cluster, const up_options& options) {
  std::error_code failed;
  std::filesystem::create_directories(options.log_folder, failed);
  if (failed)
    return error{errc::io,
                 "cannot make the log folder " + options.log_folder.string() + ": " + failed.message()};
  if (auto r = cluster.start_coordinator(); !r) return r.failure();
  if (auto r = cluster.start_nodes(); !r) return r.failure();
  if (auto r = cluster.wait_for_workers(); !r) return r.failure();
  std::string job;
  if (!options.job_file.empty() && !is_stopped()) {
    auto submitted = cluster.submit();
    if (!submitted) return submitted.failure();
    job = *submitted;
  }
  return cluster.follow(job);
}

}  // namespace

exit_code run_up(const up_options& options, renderer& view) {
  catch_signals();
  std::ostringstream nowhere;
  result<std::optional<admin::job_info>> outcome = std::optional<admin::job_info>{};
  {
    progress_view shown;
    progress_view quiet(nowhere, false);  // JSON is for machines: no bar in it
    local_cluster cluster(options, view.is_json() ? quiet : shown);
    outcome = run(cluster, options);
    cluster.end();
  }
  if (!outcome) {
    view.fail(outcome.failure());
    return exit_failed;
  }
  if (options.job_file.empty()) return exit_ok;
  const auto& job = *outcome;
  if (job) view.show(job_record(*job));
  if (!job || !has_ended(job->state)) return exit_interrupted;
  return job->state == admin::job_state::finished ? exit_ok : exit_failed;
}

}  // namespace perdura::console
