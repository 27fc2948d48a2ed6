#include "chaos/proc/cluster.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iostream>
#include <random>
#include <regex>
#include <set>

#include "actors/tls/authority.hpp"

namespace perdura::chaos {
namespace {

constexpr milliseconds start_limit{20000};
constexpr std::size_t report_lines = 40;

std::string random_tag() {
  std::random_device device;
  return "PERDURA_CHAOS=" + std::to_string(::getpid()) + "-" + std::to_string(device());
}

// Leaves dots in values alone: "a.b" -> [a] b.
std::pair<std::string, std::string> split_field(const std::string& field) {
  auto dot = field.find('.');
  if (dot == std::string::npos) return {"", field};
  return {field.substr(0, dot), field.substr(dot + 1)};
}

}  // namespace

job_text& job_text::set(const std::string& field, const std::string& value) {
  fields_[field] = value;
  return *this;
}

std::string job_text::text() const {
  std::map<std::string, std::string> tables;  // the empty name sorts first, as TOML wants it
  for (const auto& [field, value] : fields_) {
    auto [table, key] = split_field(field);
    tables[table] += key + " = " + value + "\n";
  }
  std::string out;
  for (const auto& [table, lines] : tables) out += (table.empty() ? "" : "[" + table + "]\n") + lines;
  return out;
}

job_text tiny_job() {
  return job_text({{"name", "\"tiny\""},
                   {"seed", "7"},
                   {"steps", "40"},
                   {"model.width", "32"},
                   {"model.depth", "1"},
                   {"model.heads", "2"},
                   {"model.patch", "7"},
                   {"batch.size", "32"},
                   {"batch.slots", "8"},
                   {"optimizer.warmup_steps", "5"},
                   {"checkpoint.interval_steps", "10"},
                   {"elastic.min_workers", "1"}});
}

std::filesystem::path cluster_options::program_folder() {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path();
}

std::string cluster_options::quick_settings() {
  return "heartbeat_ms = 50\nlease_ms = 600\nstep_timeout_ms = 5000\njoin_timeout_ms = 20000\ngather_ms = "
         "500\n";
}

cluster::cluster(cluster_options options) : options_(std::move(options)), tag_(random_tag()) {
  folder_ = options_.folder;
  if (folder_.empty()) {
    temporary_ = std::make_unique<temporary_folder>("perdura-cluster");
    folder_ = temporary_->path();
  }
  std::filesystem::create_directories(folder_ / "logs");
  std::filesystem::create_directories(folder_ / "traces");
  std::ofstream file(folder_ / "cluster.toml");
  file << "host = \"" << options_.host << "\"\n";
  if (options_.tls) {
    make_certificates();
    file << "tls_folder = \"" << certificates().string() << "\"\n";
  }
  file << options_.settings;  // last: it may have sections
}

void cluster::make_certificates() {
  if (auto made = tls::make_authority(authority(), true); !made) throw failure(made.failure().message);
  for (const auto as : tls::all_roles)
    if (auto made = tls::issue(authority(), {.who = {as, "here"}, .hosts = {}}, certificates(), true); !made)
      throw failure(made.failure().message);
}

cluster::~cluster() {
  bool failing = std::uncaught_exceptions() > 0 && !options_.forget_failures;
  kill_all();
  if (failing) std::cerr << logs(report_lines);
}

void cluster::start_coordinator() {
  if (coordinator_ && coordinator_->is_running()) throw failure("the coordinator runs already");
  auto output = folder_ / "logs" / ("coordinator." + std::to_string(++starts_) + ".out");
  coordinator_ = std::make_unique<process>(
      launch{.program = options_.programs / "perdura-coordinator",
             .arguments = {"--config", (folder_ / "cluster.toml").string(), "--port", std::to_string(port_),
                           "--admin-port", std::to_string(admin_port_), "--data", (folder_ / "data").string(),
                           "--log", (folder_ / "logs").string()},
             .environment = environment(),
             .output = output,
             .network = options_.network});
  wait_until("the coordinator to be ready", start_limit, [&] {
    if (auto code = coordinator_->wait(milliseconds{0}))
      throw failure("the coordinator ended with " + std::to_string(*code) + ":\n" +
                    tail(output, report_lines));
    std::ifstream file(output);
    static const std::regex ready(R"(^ready port=(\d+) admin=(\d+)$)");
    std::smatch match;
    for (std::string line; std::getline(file, line);) {
      if (!file.eof() && std::regex_match(line, match, ready)) {
        port_ = static_cast<std::uint16_t>(std::stoul(match[1]));
        admin_port_ = static_cast<std::uint16_t>(std::stoul(match[2]));
        return true;
      }
    }
    return false;
  });
  admin_.reset();
}

void cluster::kill_coordinator() {
  if (!coordinator_) throw failure("there is no coordinator to kill");
  coordinator_.reset();
  admin_.reset();
}

void cluster::start_node(const node_options& node) {
  if (nodes_.contains(node.name)) throw failure("there is a node " + node.name + " already");
  std::vector<std::string> arguments{"--join",       node.join.empty() ? address() : node.join,
                                     "--name",       node.name,
                                     "--devices",    std::to_string(node.devices),
                                     "--log",        (folder_ / "logs").string(),
                                     "--host-label", node.name};  // as if each were a machine
  arguments.insert(arguments.end(), node.more.begin(), node.more.end());
  if (options_.tls) arguments.insert(arguments.end(), {"--tls", certificates().string()});
  if (!node.fault.empty()) arguments.insert(arguments.end(), {"--fault", node.fault});
  nodes_.emplace(node.name, process(launch{.program = options_.programs / "perdura-node",
                                           .arguments = std::move(arguments),
                                           .environment = environment(),
                                           .output = folder_ / "logs" / (node.name + ".out"),
                                           .network = node.network}));
}

void cluster::kill_node(const std::string& node) {
  if (nodes_.erase(node) == 0) throw failure("there is no node " + node + " to kill");
}

process& cluster::node(const std::string& name) {
  const auto found = nodes_.find(name);
  if (found == nodes_.end()) throw failure("there is no node " + name);
  return found->second;
}

void cluster::kill_all() {
  // Until none is left: an agent may start a worker while we look.
  for (auto left = processes(); !left.empty(); left = processes()) {
    for (pid_t pid : left) ::kill(pid, SIGKILL);
    if (coordinator_) coordinator_->wait(milliseconds{1});
    for (auto& [name, node] : nodes_) node.wait(milliseconds{1});
  }
  coordinator_.reset();
  nodes_.clear();
  admin_.reset();
}

bool cluster::shut_down(milliseconds limit) {
  if (auto done = admin().shutdown(); !done) throw failure("shutdown: " + done.failure().message);
  try {
    wait_until("the cluster to end", limit, [&] {
      if (coordinator_) coordinator_->wait(milliseconds{0});
      for (auto& [name, node] : nodes_) node.wait(milliseconds{0});
      return processes().empty();
    });
  } catch (const failure&) { return false; }
  return true;
}

std::vector<std::string> cluster::environment() const {
  return {tag_, "PERDURA_TRACE=" + (folder_ / "traces").string(),
          "PERDURA_SPANS=" + (options_.keep_spans ? (folder_ / "spans").string() : std::string())};
}

std::vector<pid_t> cluster::processes() const { return processes_with(tag_); }

void cluster::signal_worker(const std::string& name, int number) {
  auto pid = static_cast<pid_t>(worker(name).pid);
  auto ours = processes();
  if (std::find(ours.begin(), ours.end(), pid) == ours.end())
    throw failure("worker " + name + " has process " + std::to_string(pid) +
                  ", which is none of this cluster");
  ::kill(pid, number);
}

void cluster::kill_worker(const std::string& name) { signal_worker(name, SIGKILL); }
void cluster::stop_worker(const std::string& name) { signal_worker(name, SIGSTOP); }
void cluster::continue_worker(const std::string& name) { signal_worker(name, SIGCONT); }

admin::admin_api& cluster::admin() {
  if (!admin_) {
    admin::client_options options;
    if (options_.tls) {
      auto identity = tls::load_identity(certificates(), tls::role::admin);
      if (!identity) throw failure(identity.failure().message);
      options.tls = *identity;
    }
    auto client = admin::connect(options_.host, admin_port_, options);
    if (!client) throw failure("no admin connection: " + client.failure().message);
    admin_ = std::move(client).value();
  }
  return *admin_;
}

template <class T>
T cluster::ask(const std::string& what, const std::function<result<T>(admin::admin_api&)>& question) {
  auto answer = question(admin());
  if (!answer) {
    admin_.reset();
    throw failure(what + ": " + answer.failure().message);
  }
  return std::move(answer).value();
}

std::string cluster::submit(const std::string& text) {
  auto answer = ask<admin::submission>("submit", [&](auto& a) { return a.submit(text, "job.toml"); });
  if (!answer.errors.empty()) throw failure("the job was refused: " + answer.errors.front());
  return answer.job;
}

admin::cluster_status cluster::status() {
  return ask<admin::cluster_status>("status", [](auto& a) { return a.status(); });
}

std::vector<admin::worker_info> cluster::workers() {
  return ask<std::vector<admin::worker_info>>("workers", [](auto& a) { return a.workers(); });
}

admin::worker_info cluster::worker(const std::string& name) {
  std::string known;
  for (auto& w : workers()) {
    if (w.name == name && w.state != admin::worker_state::dead && w.state != admin::worker_state::fenced)
      return w;
    known += " " + w.name + "(" + std::string(to_string(w.state)) + ")";
  }
  throw failure("no living worker " + name + " among" + known);
}

admin::job_info cluster::job() {
  auto all = ask<std::vector<admin::job_info>>("jobs", [](auto& a) { return a.jobs(); });
  if (all.empty()) throw failure("there is no job");
  return all.back();
}

admin::job_info cluster::job(const std::string& id) {
  auto all = ask<std::vector<admin::job_info>>("jobs", [](auto& a) { return a.jobs(); });
  for (auto& j : all)
    if (j.id == id) return j;
  throw failure("there is no job " + id);
}

void cluster::wait_job(const std::string& what, const std::string& id,
                       const std::function<bool(const admin::job_info&)>& reached, milliseconds limit) {
  wait_until("job " + id + " " + what, limit, [&] {
    const auto now = job(id);
    if (reached(now)) return true;
    if (admin::has_ended(now.state))
      throw failure("job " + id + " is " + std::string(to_string(now.state)) + " at step " +
                    to_string(now.step) + ": " + now.why);
    return false;
  });
}

admin::job_info cluster::wait_finished(const std::string& id, milliseconds limit) {
  wait_job(
      "to finish", id, [](const auto& j) { return j.state == admin::job_state::finished; }, limit);
  return job(id);
}

std::vector<admin::event_info> cluster::events() {
  std::vector<admin::event_info> all;
  for (admin::event_query query;;) {
    auto page = ask<admin::event_page>("events", [&](auto& a) { return a.events(query); });
    if (page.events.empty()) return all;
    all.insert(all.end(), page.events.begin(), page.events.end());
    query.after = page.next;
  }
}

std::vector<admin::step_info> cluster::steps() {
  constexpr std::uint32_t page_size = 1000;
  std::vector<admin::step_info> all;
  for (step_number from{1};;) {
    auto page =
        ask<std::vector<admin::step_info>>("steps", [&](auto& a) { return a.steps("", from, page_size); });
    if (page.empty()) return all;
    all.insert(all.end(), page.begin(), page.end());
    from = page.back().step + 1;
  }
}

std::vector<admin::recovery_info> cluster::recoveries() {
  return ask<std::vector<admin::recovery_info>>("recoveries", [](auto& a) { return a.recoveries(""); });
}

void cluster::wait_step(std::uint64_t step, milliseconds limit) {
  wait_until("step " + std::to_string(step), limit, [&] {
    auto now = job();
    if (now.step.value >= step) return true;
    if (admin::has_ended(now.state))
      throw failure("the job ended at step " + to_string(now.step) + ": " + now.why);
    return false;
  });
}

void cluster::wait_members(std::size_t count, milliseconds limit) {
  wait_until(std::to_string(count) + " members", limit, [&] {
    auto all = workers();
    auto members = std::count_if(all.begin(), all.end(),
                                 [](const auto& w) { return w.state == admin::worker_state::member; });
    return static_cast<std::size_t>(members) == count;
  });
}

void cluster::wait_event(const std::string& kind, milliseconds limit) {
  wait_until("event " + kind, limit, [&] {
    auto all = events();
    return std::any_of(all.begin(), all.end(), [&](const auto& e) { return e.kind == kind; });
  });
}

admin::job_info cluster::wait_finished(milliseconds limit) {
  admin::job_info now;
  wait_until("the job to finish", limit, [&] {
    now = job();
    return admin::has_ended(now.state);
  });
  if (now.state != admin::job_state::finished)
    throw failure("the job is " + std::string(to_string(now.state)) + ": " + now.why);
  return now;
}

std::string cluster::logs(std::size_t lines) const {
  std::set<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "logs", ignored))
    if (entry.is_regular_file(ignored)) files.insert(entry.path());
  std::string out;
  for (const auto& file : files) out += "  " + file.filename().string() + "\n" + tail(file, lines);
  return out;
}

}  // namespace perdura::chaos
