// The admin protocol as plain C++: what can be asked of a coordinator, and what it answers. The coordinator's
// shell implements admin_service, server.hpp puts it on a port, client.hpp is the same interface from another
// process.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

namespace perdura::admin {

struct cluster_status {
  std::string version{};
  std::uint32_t protocol{};
  std::uint32_t storage_format{};
  term_number term{};
  era at{};
  std::uint64_t uptime_ms{};
  std::uint32_t pid{};
  std::uint16_t port{};
  std::uint16_t admin_port{};
  std::string data_folder{};
  std::string log_folder{};
  std::uint64_t last_event{};  // its sequence
};

// Of a node or worker that is to be used no more.
struct departure {
  bool is_going{};
  std::optional<std::uint64_t> left_ms{};  // until its machine is gone
  std::string why{};
};

enum class node_state : std::uint8_t { joining, up, suspect, draining, gone };

struct node_info {
  std::string name{};
  std::string host{};
  incarnation who{};
  std::uint32_t devices{};
  node_state state{};
  std::uint64_t last_seen_ms{};  // since its last heartbeat
  std::uint32_t pid{};
  std::string host_label{};  // where it stands; empty: shared with nobody
  std::string rack{};
  std::string zone{};
  departure leaving{};
};

enum class worker_state : std::uint8_t { joining, idle, learning, member, leaving, fenced, dead };

struct worker_info {
  std::string name{};
  incarnation who{};
  std::string node{};
  worker_state state{};
  std::uint32_t slots{};
  double slot_ms{};  // measured time of one slot
  step_number step{};
  std::string phase{};
  std::uint64_t lag{};  // steps behind the newest verdict
  std::uint64_t resident_bytes{};
  std::uint32_t pid{};
  std::string job{};  // that it serves; empty: none
  std::uint32_t tiles_owned{};
  std::uint32_t tiles_held{};  // as owner or replica
  departure leaving{};         // by itself, or with its node
};

enum class job_state : std::uint8_t {
  waiting,
  starting,
  running,
  paused,
  recovering,
  finished,
  failed,
  cancelled
};

constexpr bool has_ended(job_state s) {
  return s == job_state::finished || s == job_state::failed || s == job_state::cancelled;
}

struct job_info {
  std::string id{};
  std::string name{};
  job_state state{};
  step_number step{};
  std::uint64_t steps{};
  double loss{};
  double gradient_norm{};
  double learning_rate{};
  double images_per_s{};
  era at{};
  timeline_number timeline{};
  plan_id plan{};
  std::optional<step_number> last_checkpoint{};
  std::string final_hash{};  // empty until finished
  std::uint32_t recoveries{};
  std::string why{};  // when it does not run: what it waits for or is missing, or what ended it
  std::int32_t priority{};
  std::uint32_t workers{};  // that serve it
  std::uint32_t min_workers{};
  std::uint32_t max_workers{};  // 0: no quota
};

struct plan_share {
  std::string worker{};
  incarnation who{};
  std::vector<block> blocks{};
  std::uint32_t tiles_owned{};
  std::uint32_t tiles_held{};
};

struct plan_info {
  plan_id id{};
  std::vector<plan_share> members{};
};

struct event_info {
  std::uint64_t sequence{};
  std::int64_t time_ms{};  // Unix time
  std::string kind{};
  std::string job{};
  std::string subject{};
  std::string reason{};
  std::vector<std::pair<std::string, std::string>> fields{};
};

struct event_query {
  std::uint64_t after{};  // events of a higher sequence; 0: from the oldest kept
  std::uint32_t limit = 200;
  std::uint32_t wait_ms{};  // hold the answer this long while there is no event; the server sees to it
  std::string job{};        // empty: all
  bool newest{};            // the last `limit` events; `after` is ignored
};

struct event_page {
  std::vector<event_info> events{};
  std::uint64_t next{};        // the query's `after` to go on with
  std::uint64_t first_kept{};  // oldest sequence that the log still holds
};

struct step_info {
  step_number step{};
  double loss{};
  double ms{};
};

struct recovery_info {
  std::string what{};
  std::string kind{};
  step_number step{};
  std::int64_t time_ms{};                // Unix time of the first sign
  double detected_ms{};                  // from the first sign to the decision
  std::optional<double> committed_ms{};  // from the first sign to the next committed step; none: not yet
  std::uint64_t recomputed_slots{};
};

enum class checkpoint_state : std::uint8_t { writing, committed, condemned };

struct checkpoint_info {
  std::string job{};
  step_number step{};
  timeline_number timeline{};
  std::uint64_t bytes{};
  std::int64_t created_ms{};  // Unix time
  checkpoint_state state{};
};

// Where checkpoints go besides the coordinator's own store; of each job there, one.
struct tier_info {
  std::string name{};
  std::string where{};
  std::string job{};        // empty: there is nothing yet
  step_number step{};       // of the newest that is there
  std::uint32_t missing{};  // checkpoints of all jobs that are not there yet
  std::string failure{};    // of the last attempt; empty: it succeeded
};

struct submission {
  std::string job{};                  // its id; empty when there are errors
  std::vector<std::string> errors{};  // each with file, line, field and what is allowed
};

// A write was accepted; the note says what happens now.
struct receipt {
  std::string note{};
};

struct audit_entry {
  std::string who{};  // "local" until there are roles
  std::string action{};
  std::string subject{};
  std::string outcome{};  // "ok" or the error
};

// A job may be named by its id or its name; an empty one means the only job that has not ended (for reads: or
// the newest). Unknown names are not_found and say what there is.
class admin_api {
 public:
  virtual ~admin_api() = default;

  virtual result<cluster_status> status() = 0;
  virtual result<std::vector<node_info>> nodes() = 0;
  virtual result<std::vector<worker_info>> workers() = 0;
  virtual result<std::vector<job_info>> jobs() = 0;
  virtual result<plan_info> plan(const std::string& job) = 0;
  virtual result<event_page> events(const event_query& query) = 0;
  virtual result<std::vector<step_info>> steps(const std::string& job, step_number from,
                                               std::uint32_t limit) = 0;
  virtual result<std::vector<recovery_info>> recoveries(const std::string& job) = 0;
  virtual result<std::vector<checkpoint_info>> checkpoints(const std::string& job) = 0;
  virtual result<std::vector<tier_info>> tiers() = 0;

  virtual result<submission> submit(const std::string& text, const std::string& file) = 0;
  virtual result<receipt> pause(const std::string& job) = 0;
  virtual result<receipt> resume(const std::string& job) = 0;
  virtual result<receipt> cancel(const std::string& job) = 0;
  // Of a node or a worker. `within`: its machine is gone then.
  virtual result<receipt> drain(const std::string& name, std::optional<std::chrono::milliseconds> within) = 0;
  virtual result<receipt> kill(const std::string& worker) = 0;
  virtual result<receipt> checkpoint_now(const std::string& job) = 0;
  // Both go on in the background; how they end is an event, store_tended.
  virtual result<receipt> collect_garbage(const std::string& job, bool dry_run) = 0;
  virtual result<receipt> rebuild_index() = 0;
  virtual result<receipt> shutdown() = 0;
};

// What the server asks of the coordinator. Called from the server's thread alone, while other threads go on;
// a call holds up all admin clients, so it answers from what is at hand or gives up within a second or so.
class admin_service : public admin_api {
 public:
  // Every write, refused ones too, after its answer is known.
  virtual void audit(const audit_entry& entry) = 0;
};

std::string_view to_string(node_state s);
std::string_view to_string(worker_state s);
std::string_view to_string(job_state s);
std::string_view to_string(checkpoint_state s);

}  // namespace perdura::admin
