// What the coordinator and the workers say to each other: small messages, over CAF.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

namespace perdura {

inline constexpr std::uint32_t protocol_version = 3;

struct endpoint {
  std::string host;
  std::uint16_t port{};
  auto operator<=>(const endpoint&) const = default;
};
// "HOST:PORT", "[::1]:7401". Error invalid_argument says what is expected.
result<endpoint> parse_endpoint(const std::string& text);

// ---- who speaks

// By certificate. CAF shows nobody its peer's certificate, so each side signs what the other chose at random.
// Empty where the cluster has no certificates.
struct role_proof {
  std::string certificate;  // PEM
  std::string signature;    // tls::hello_text says of what
};

// Before a hello where the cluster has certificates; the coordinator proves its own role in the answer.
struct challenge_request {
  incarnation who;
  std::string nonce;
};

// Good for one hello of the same sender.
struct role_challenge {
  std::string nonce;
  role_proof coordinator;
};

// ---- worker to coordinator

// First word on each connection, repeated after a reconnection: all the coordinator needs to take it (back)
// in.
struct worker_hello {
  std::uint32_t protocol{};
  incarnation who;
  incarnation node;               // the agent's life that spawned it
  std::string name;               // "node-1/0", for people
  endpoint link;                  // where its data link listens
  std::uint64_t numeric_class{};  // 0 until a job is known and the canary has run
  term_number term;               // highest it obeyed
  era at;                         // newest it promised
  plan_id plan;                   // under which it works, or none
  std::optional<verdict> newest;
  std::uint64_t type_table{};  // wire::type_table_hash() of the sender
  std::uint32_t pid{};
  role_proof proof;
};

// How far a worker is in its step. The watchdog's limits are learnt for each.
enum class worker_phase : std::uint8_t {
  idle,
  settling,
  compute,
  exchange,
  vote,
  apply,
  gather,
  paused,
  finished
};
const char* to_string(worker_phase p);

// From a thread of its own, every cluster_config::heartbeat.
struct heartbeat {
  incarnation who;
  step_number step;
  worker_phase phase = worker_phase::idle;
  std::uint64_t slots_done{};  // since the process started
  double slot_seconds{};       // spent on them
  std::uint64_t resident_bytes{};
};

struct tile_inventory {
  tile_id tile;
  step_number version;
  bool complete{};      // a half-copied tile is no holder
  bool has_gradient{};  // g(version + 1) is held
};

enum class block_status : std::uint8_t { computing, computed, received };

struct block_inventory {
  block slots;
  block_status status{};
  std::vector<tile_id> tiles;  // of a received block: for which tiles; of a computed one: empty, it is all
};

struct inventory_report {
  era at;
  incarnation who;
  timeline_number timeline;
  plan_id plan;  // newest it worked under or knows to be effective
  std::optional<verdict> newest;
  std::vector<tile_inventory> tiles;
  step_number partials_step;  // of `blocks`
  std::vector<block_inventory> blocks;
};

struct plan_adopted {
  era at;
  incarnation who;
};

struct verdict_report {
  incarnation who;
  verdict observed;
};

// A link between two members, or a member and a leaver, broke or cannot be made.
struct link_complaint {
  incarnation who;
  incarnation about;
  era at;
  std::string why;
};

struct released_report {
  incarnation who;
  plan_id plan;  // the one that it has left, or given tiles up under
};

// Where a chunk lies: storage::chunk_record.
struct stored_chunk {
  std::array<std::uint8_t, 32> hash{};  // of the decoded bytes
  std::string pack;
  std::uint64_t offset{};
  std::uint64_t stored_size{};
  std::uint64_t decoded_size{};
  std::uint8_t codec{};  // storage::chunk_codec
};

// A worker's tile is durable, in its pack or in an older one that has the same bytes. Everything needed to
// write the manifest's line.
struct chunk_report {
  incarnation who;
  timeline_number timeline;
  era at;
  step_number step;
  tile_id tile;
  std::uint8_t kind{};  // which array of the tile: storage::chunk_kind
  stored_chunk chunk;
  std::vector<stored_chunk> bases;  // what a delta builds on, nearest first
};

// All state at the last step, hashed tile by tile.
struct final_report {
  incarnation who;
  timeline_number timeline;
  step_number step;
  std::vector<std::uint64_t> tile_hashes;  // of every tile, 0 where not held
};

// The worker has read the job, built its model and run the canary: it can be made a member.
struct job_ready {
  incarnation who;
  std::string job;
  std::uint64_t numeric_class{};
  std::vector<tile> tiles;
  std::vector<named_tensor> tensors{};  // what the tiles hold, for checkpoints
};

// A worker that cannot go on says why before it ends: a job that none can run fails with the reason.
struct worker_failure {
  incarnation who;
  std::string why;
};

using worker_message =
    std::variant<worker_hello, inventory_report, plan_adopted, verdict_report, link_complaint,
                 released_report, chunk_report, final_report, worker_failure, job_ready>;

struct worker_report {
  worker_message message;
};

// ---- node agent and coordinator

// Where a machine stands. Replicas avoid what they share; an empty label is shared with nobody.
struct node_labels {
  std::string host;  // two agents on one machine say the same; empty: a machine of its own
  std::string rack;
  std::string zone;
  bool operator==(const node_labels&) const = default;
};

// An agent's first word on each connection.
struct node_hello {
  std::uint32_t protocol{};
  std::uint64_t type_table{};  // wire::type_table_hash() of the sender
  incarnation who;
  std::string name;  // "node-1", for people
  std::string host;
  std::uint32_t devices{};  // workers it starts, one a device
  std::uint32_t pid{};
  node_labels labels;
  bool going = false;  // it has been told to go: a notice follows, nothing new is placed there
  role_proof proof;
};

// The machine is about to go: its workers hand over what they hold. Sent again on each connection.
struct node_notice {
  incarnation who;
  std::uint32_t deadline_ms{};  // from now
  std::string why;              // "SIGTERM", "the notice file ...", "the metadata service said ..."
};

struct node_heartbeat {
  incarnation who;
  std::uint32_t workers_alive{};
  std::uint64_t resident_bytes{};
};

// A worker process has ended, seen by the agent that spawned it.
struct child_exit {
  incarnation node;
  incarnation worker;
  std::string how;  // "signal 9", "exit code 3"
  bool killed{};    // by the agent itself, on order
};

// The answer to a hello that is accepted; a refusal is an error that says why.
struct welcome {
  term_number term;
  std::uint32_t heartbeat_ms{};  // how often to send heartbeats
};

// SIGKILL, if that life still runs; the agent reports its end and starts a new one.
struct kill_worker {
  incarnation worker;
  std::string why;
};

// Start the workers that are missing (a fenced one that ended, one given up after too many quick deaths).
struct start_workers {};

// End all workers and the agent.
struct stop_node {
  std::string why;
};

struct node_order {
  term_number term;
  incarnation to;
  std::variant<kill_worker, start_workers, stop_node> order;
};

// ---- coordinator to worker

// What the job is. The text is the job file; the worker parses it with the same code as the coordinator.
struct job_order {
  std::string job;  // its id
  std::string text;
  std::string store;  // folder of the checkpoint store
};

struct peer {
  incarnation who;
  endpoint link;
  auto operator<=>(const peer&) const = default;
};

// Whom to hold links to; sent whenever it changes. Of two peers the one with the lower incarnation dials.
struct peers_order {
  std::vector<peer> peers;
};

// Promise to ignore older eras, then report what you hold.
struct fence_order {
  era at;
  timeline_number timeline;
};

// Where state comes from when no survivor holds it: a committed checkpoint, or, where no verdict stands with
// it, the seed.
struct restore_source {
  step_number step;
  timeline_number timeline;  // of the checkpoint
  bool operator==(const restore_source&) const = default;
};

// The decision of a recovery. All state goes to version `settled`; the next step is settled + 1.
struct recover_order {
  era at;
  timeline_number timeline;
  plan next;
  step_number settled;
  std::optional<verdict> standing;  // of `settled`; holders that have not applied it do so
  std::optional<verdict> expected;  // of settled + 1, if it was observed but must be redone: compare
  std::optional<restore_source> restore;
  std::vector<block> orphans;    // of settled + 1: not recomputed, whoever received them sends them on
  std::vector<tile_id> reduced;  // tiles whose owner holds g(settled + 1) already
  bool operator==(const recover_order&) const = default;
};

struct start_order {
  era at;
};

struct proposal_order {
  timeline_number timeline;
  plan_id base;
  plan next;
  std::vector<incarnation> leavers;  // members of the base that `next` lacks
  std::vector<tile_move> moves;      // the difference of the two maps
  bool operator==(const proposal_order&) const = default;
};

struct released_ack {
  plan_id plan;
};

// Nothing that the receiver produces counts any more. It ends and comes back as a new incarnation.
struct fenced_order {
  era at;
};

// The job has ended; drop its state and wait for the next.
struct dismiss_order {
  std::string job;
};

using coordinator_order = std::variant<job_order, peers_order, fence_order, recover_order, start_order,
                                       proposal_order, released_ack, fenced_order, dismiss_order>;

// Each order carries the coordinator's term: lower terms than the highest seen are refused.
struct order_envelope {
  term_number term;
  incarnation to;
  coordinator_order order;
};

}  // namespace perdura
