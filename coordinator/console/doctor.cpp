#include "coordinator/console/doctor.hpp"

#include <netdb.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "coordinator/admin/client.hpp"
#include "coordinator/console/children.hpp"
#include "coordinator/console/launch.hpp"

namespace perdura::console {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t data_free_least = 2ULL << 30;  // a checkpoint of the reference model is 20 MiB
constexpr std::uint64_t log_free_least = 256ULL << 20;
constexpr rlim_t open_files_least = 1024;
constexpr std::chrono::seconds program_limit{30};
constexpr std::time_t earliest_sane_clock = 1704067200;  // 2024-01-01

finding ok(std::string check, std::string found) {
  return {std::move(check), health::ok, std::move(found), ""};
}
finding warn(std::string check, std::string found, std::string advice) {
  return {std::move(check), health::warn, std::move(found), std::move(advice)};
}
finding fail(std::string check, std::string found, std::string advice) {
  return {std::move(check), health::fail, std::move(found), std::move(advice)};
}

// 0 when a listener could be made there, else errno.
int try_listening(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* at = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &at) != 0) return EADDRNOTAVAIL;
  const int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  int failed = fd < 0 ? errno : 0;
  if (failed == 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (failed == 0 && bind(fd, at->ai_addr, at->ai_addrlen) != 0) failed = errno;
  if (failed == 0 && listen(fd, 1) != 0) failed = errno;
  if (fd >= 0) close(fd);
  freeaddrinfo(at);
  return failed;
}

// The nearest folder that exists: the rest would be made there.
fs::path nearest_existing(fs::path folder) {
  std::error_code failed;
  while (!folder.empty() && folder != folder.root_path() && !fs::exists(folder, failed))
    folder = folder.parent_path();
  return folder.empty() ? fs::path(".") : folder;
}

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string last_line(const fs::path& file) {
  std::ifstream in(file);
  std::string last;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) last = line;
  return last;
}

}  // namespace

finding check_settings(const result<settings>& read) {
  const std::string check = "configuration";
  if (!read) return fail(check, read.failure().message, "correct the file, or name another with --config");
  return ok(check, read->origin.empty() ? "no file, defaults" : read->origin);
}

finding check_port(const std::string& what, const std::string& host, std::uint16_t port, bool is_admin,
                   const std::string& tls_folder) {
  const auto check = what + " " + std::to_string(port);
  const int failed = try_listening(host, port);
  if (failed == 0) return ok(check, "free on " + host);
  const auto flag = is_admin ? std::string("--admin-port") : std::string("--port");
  if (failed != EADDRINUSE)
    return fail(check, host + ": " + std::strerror(failed), "choose another with " + flag);
  if (is_admin) {
    admin::client_options options;
    options.connect_timeout = std::chrono::milliseconds(1000);
    // What is wrong with it is said by check_certificates.
    if (auto identity = tls::load_if_any(tls_folder, tls::role::admin)) options.tls = *identity;
    if (auto api = admin::connect(host, port, options)) return ok(check, "a coordinator listens on " + host);
    return fail(check, "used by another program", "end it, or choose another with " + flag);
  }
  return warn(check, "in use",
              "by a coordinator, if the admin port is too; else choose another with " + flag);
}

finding check_folder(const std::string& what, const std::string& folder, std::uint64_t free_bytes_least) {
  if (folder.empty()) return fail(what, "no folder", "set it in the configuration");
  const auto existing = nearest_existing(folder);
  if (!fs::is_directory(existing)) return fail(what, existing.string() + " is no folder", "name another");
  if (access(existing.c_str(), W_OK | X_OK) != 0)
    return fail(what, existing.string() + ": " + std::strerror(errno), "make it writable, or name another");
  struct statvfs disk {};
  if (statvfs(existing.c_str(), &disk) != 0)
    return fail(what, existing.string() + ": " + std::strerror(errno), "make it readable, or name another");
  const auto free = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  const auto found = folder + ", " + to_text(value(free), unit::bytes) + " free";
  if (free < free_bytes_least)
    return warn(what, found, "make room: less than " + to_text(value(free_bytes_least), unit::bytes));
  return ok(what, found);
}

finding check_certificates(const std::string& tls_folder) {
  const std::string check = "certificates";
  if (tls_folder.empty()) return ok(check, "no TLS: loopback alone");
  std::string found;
  for (const auto as : tls::all_roles) {
    std::error_code failed;
    if (!fs::exists(fs::path(tls_folder) / (std::string(to_string(as)) + ".pem"), failed)) continue;
    const auto identity = tls::load_identity(tls_folder, as);
    if (!identity)
      return fail(check, identity.failure().message, "perdura pki issue, and copy the folder here");
    found += (found.empty() ? "" : ", ") + to_string((*identity)->self);
  }
  if (found.empty())
    return fail(check, "none in " + tls_folder, "perdura pki issue, and copy the folder here");
  return ok(check, found);
}

finding check_data_set(const std::string& folder) {
  constexpr std::array<const char*, 4> files{"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                             "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};
  std::error_code failed;
  for (const std::string file : files)
    if (!fs::exists(fs::path(folder) / file, failed) &&
        !fs::exists(fs::path(folder) / (file + ".gz"), failed))
      return warn("data set", folder + " lacks " + file,
                  "apt-get install dataset-fashion-mnist, or set data.folder in the job");
  return ok("data set", folder);
}

finding check_program(const std::string& name) {
  auto program = find_program(name);
  if (!program) return fail(name, "not found", program.failure().message);
  children processes;
  const auto output = fs::temp_directory_path() / ("perdura-doctor-" + std::to_string(getpid()) + ".out");
  auto started = processes.start(name, *program, {"--version"}, output);
  const bool has_ended = started && processes.wait_all(program_limit);
  const int status = has_ended ? *processes.find(name)->status : 0;
  const auto line = status == 0 ? first_line(output) : last_line(output);
  std::error_code ignored;
  fs::remove(output, ignored);
  if (!started) return fail(name, started.failure().message, "install it again");
  if (!has_ended) return fail(name, program->string() + " does not answer --version", "install it again");
  if (status != 0)
    return fail(name, how_it_ended(status) + (line.empty() ? "" : ": " + line),
                name == "perdura-worker" ? "LibTorch may be missing: configs/install-deps, then build again"
                                         : "build or install it again");
  return ok(name, line);
}

finding check_clock() {
  if (std::time(nullptr) < earliest_sane_clock)
    return fail("clock", "before 2024", "set the clock: times in logs and checkpoints would mislead");
  timex state{};
  if (adjtimex(&state) == TIME_ERROR)
    return warn("clock", "not synchronized",
                "run an NTP client: nothing depends on it, but logs of several machines do");
  return ok("clock", "synchronized");
}

finding check_open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const auto found = std::to_string(limit.rlim_cur);
  if (limit.rlim_cur < open_files_least)
    return warn("open files", found,
                "ulimit -n " + std::to_string(open_files_least) + " before starting the coordinator");
  return ok("open files", found);
}

exit_code run_doctor(const result<settings>& read, renderer& view) {
  std::vector<finding> all{check_settings(read)};
  if (read) {
    const auto& cluster = read->cluster;
    all.push_back(check_port("admin port", cluster.host, cluster.admin_port, true, cluster.tls_folder));
    all.push_back(check_port("port", cluster.host, cluster.port, false));
    all.push_back(check_certificates(cluster.tls_folder));
    all.push_back(check_folder("data folder", cluster.data_folder, data_free_least));
    all.push_back(check_folder("log folder", cluster.log_folder, log_free_least));
    all.push_back(check_folder("runtime folder", cluster.runtime_folder, 0));
  }
  all.push_back(check_data_set(data_config{}.folder));
  for (const char* name : {"perdura-coordinator", "perdura-node", "perdura-worker"})
    all.push_back(check_program(name));
  all.push_back(check_clock());
  all.push_back(check_open_files());

  table t{
      {{"check", "CHECK"}, {"state", "STATE", unit::state}, {"found", "FOUND"}, {"advice", "TO DO"}}, {}, ""};
  bool has_failed = false;
  for (const auto& f : all) {
    const char* state = f.is == health::ok ? "ok" : f.is == health::warn ? "warn" : "fail";
    has_failed = has_failed || f.is == health::fail;
    t.rows.push_back({value(f.check), value(state), value(f.found), value(f.advice)});
  }
  view.show(t);
  return has_failed ? exit_failed : exit_ok;
}

}  // namespace perdura::console
