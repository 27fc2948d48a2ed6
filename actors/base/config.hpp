// What a job and a cluster are asked to be. Read from TOML by actors/runtime/config_file, which refuses
// unknown keys, wrong types and impossible values with file, line, field and what is allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/base/tier_config.hpp"

namespace perdura {

struct model_config {
  std::string kind = "dit";
  std::uint32_t width = 128;
  std::uint32_t depth = 4;
  std::uint32_t heads = 2;  // divides width
  std::uint32_t patch = 4;  // divides the image's side
  std::uint32_t mlp_ratio = 4;
  // Keep only each block's input for the backward pass and run the block again there.
  bool activation_checkpointing = false;
};

struct data_config {
  std::string kind = "fashion-mnist";
  std::string folder = "/usr/share/datasets/fashion-mnist";
  double label_drop = 0.1;  // fraction of labels replaced by the null class, for guidance
};

struct batch_config {
  std::uint32_t size = 128;  // samples a step; a multiple of slots
  std::uint32_t slots = 16;  // V, a power of two
  // Slots whose stages run side by side in one pass where gradients or parameters are sharded: a stage is
  // gathered once for all of them. A power of two.
  std::uint32_t pass_slots = 4;
};

struct optimizer_config {
  std::string kind = "adamw";
  double learning_rate = 2e-3;
  std::uint64_t warmup_steps = 50;
  double decay_fraction = 0.4;  // of all steps, at the end, linear to zero
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;
  double clip_norm = 1.0;  // 0: no clipping
  double ema_decay = 0.995;
};

struct checkpoint_config {
  std::uint64_t interval_steps = 100;
  std::uint32_t interval_s = 0;        // also after so long; 0: no
  std::uint32_t keep = 3;              // newest ones kept
  std::uint32_t keep_every_hours = 0;  // and the first of each so many hours; 0: none
  std::string codec = "auto";          // or "raw"
  std::uint32_t deltas = 8;            // on top of each other
  std::uint32_t write_mb_per_s = 0;    // of each worker; 0: as fast as it goes
  std::uint32_t promise_s = 900;       // without a checkpoint for so long there is an alarm; 0: none
};

struct elastic_config {
  std::uint32_t min_workers = 1;  // fewer than these and the job waits
  std::uint32_t max_workers = 0;  // quota; 0: none
  std::uint32_t spares = 0;  // workers kept ready, with the job loaded, to replace one that is lost or slow
  std::uint32_t max_skips = 20;         // non-finite steps in a row that end the job
  bool rebalance = true;                // slots follow measured speed
  bool evict_slow = true;               // a member without which steps are faster is let go
  std::uint32_t transfer_mb_per_s = 0;  // of each worker, for copies to learners; 0: as fast as it goes
};

struct sample_config {
  double guidance = 2.0;
  std::uint32_t steps = 40;
};

// Who holds what. Each level shards what the one before does, and more.
enum class sharding_level : std::uint8_t {
  replicated,  // all state everywhere
  optimizer,   // ZeRO-1: moments, average and master weights at the tile's holders
  gradients,   // ZeRO-2: gradients leave for the tile's owner as soon as they are there, and are not kept
  parameters,  // ZeRO-3: parameters are gathered a stage ahead of their use and freed behind
};

struct job_config {
  std::string name = "job";
  std::uint64_t seed = 1;
  std::uint64_t steps = 600;
  // fp32, or bf16: operands of matrix products are rounded to it, sums and the master weights are fp32.
  std::string precision = "fp32";
  std::string sharding = "replicated";  // a sharding_level by name
  std::uint32_t replicas = 2;           // holders of each tile where state is sharded, owner included
  std::int32_t priority = 0;            // of two jobs that want the same workers the higher goes first
  std::string start_from;  // a checkpoint of another job, as perdura ckpt names it; empty: the seed
  model_config model;
  data_config data;
  batch_config batch;
  optimizer_config optimizer;
  checkpoint_config checkpoint;
  elastic_config elastic;
  sample_config sample;
};

struct cluster_config {
  std::string host = "127.0.0.1";   // loopback, unless tls_folder is set
  std::uint16_t port = 7400;        // coordinator, for nodes and workers (CAF)
  std::uint16_t admin_port = 7401;  // admin RPC (Cap'n Proto)
  // This machine's certificates, as `perdura pki issue` writes them; empty: no TLS, loopback alone.
  std::string tls_folder;
  std::string data_folder;  // empty: XDG or /var/lib/perdura
  std::string log_folder;
  std::string runtime_folder;
  std::chrono::milliseconds heartbeat{100};
  std::chrono::milliseconds lease{1500};  // > 3 heartbeats
  std::chrono::milliseconds step_timeout{
      10000};  // > lease; least time a step may take before it counts as hung
  std::chrono::milliseconds join_timeout{30000};  // > step_timeout
  std::chrono::milliseconds gather{1000};         // wait for further workers before the first step of a job
  std::uint64_t log_bytes_max = 16u << 20;        // a log file is rotated at this size
  std::uint32_t log_files = 4;
  std::vector<tier_config> tiers;  // [tier.NAME]
};

sharding_level level_of(const job_config& job);
// Holders of each tile; 0: every member.
std::uint32_t holders_wanted(const job_config& job);

}  // namespace perdura
