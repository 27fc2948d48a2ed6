// What there is to configure, and what fits together.
#include <algorithm>
#include <bit>

#include "actors/runtime/config_table.hpp"
#include "actors/runtime/host.hpp"

namespace perdura::runtime {

namespace {

constexpr double seed_most =
    9'007'199'254'740'992.0;  // 2^53: whole numbers that every TOML and JSON tool keeps
constexpr double steps_most = 1e9;
constexpr double hour_ms = 3'600'000;
constexpr std::uint32_t fashion_mnist_side = 28;
constexpr std::size_t label_bytes_max = 128;

// Adds the fields of one section.
class section {
 public:
  section(config_table& table, std::string name) : table_(table), name_(std::move(name)) {}

  section& number(const char* key, value_pointer value, double least, double most, const char* unit,
                  const char* why) {
    table_.push_back({name_, key, value, unit, least, most, {}, why});
    return *this;
  }
  // How the last one is called on the command line.
  section& as(const char* flag) {
    table_.back().flag = flag;
    return *this;
  }
  section& flag(const char* key, bool* value, const char* why) {
    table_.push_back({name_, key, value, "", 0, 0, {}, why});
    return *this;
  }
  section& text(const char* key, std::string* value, std::vector<std::string> choices, const char* why) {
    table_.push_back({name_, key, value, "", 0, 0, std::move(choices), why});
    return *this;
  }

 private:
  config_table& table_;
  std::string name_;
};

std::string text(std::uint64_t n) { return std::to_string(n); }

// "lease_ms (1500) must be more than 3 times heartbeat_ms (600)"
broken_rule too_short(const char* longer, std::chrono::milliseconds is, const char* times,
                      const char* shorter, std::chrono::milliseconds than) {
  return {{longer, shorter},
          "is " + text(static_cast<std::uint64_t>(is.count())) + ", must be more than " + times + shorter +
              " (" + text(static_cast<std::uint64_t>(than.count())) + ")"};
}

void append_checkpoint(config_table& t, checkpoint_config& c) {
  section(t, "checkpoint")
      .number("interval_steps", &c.interval_steps, 1, steps_most, "steps",
              "what losing all workers costs at most")
      .number("interval_s", &c.interval_s, 0, 1e6, "s",
              "also when so long has passed since the last one; 0: by steps alone")
      .number("keep", &c.keep, 1, 1000, "checkpoints",
              "the newest; the others are deleted, but for tagged ones")
      .number("keep_every_hours", &c.keep_every_hours, 0, 10000, "hours",
              "also keep the first of each so many hours; 0: none")
      .text("codec", &c.codec, {"auto", "raw"},
            "auto: of each kind of chunk the codec that pays; raw: bytes as they are")
      .number("deltas", &c.deltas, 0, 64, "checkpoints",
              "that build on each other as differences before one is whole again: smaller, but more to read")
      .number("write_mb_per_s", &c.write_mb_per_s, 0, 1e6, "MB/s",
              "of each worker, to the store; 0: not limited")
      .number("promise_s", &c.promise_s, 0, 1e7, "s",
              "an alarm when a job that computes has had no checkpoint for so long; 0: none");
}

}  // namespace

config_table fields_of(job_config& j) {
  config_table t;
  section(t, "")
      .text("name", &j.name, {}, "names the job in lists and in the store: letters, digits, `-` and `_`")
      .number("seed", &j.seed, 0, seed_most, "",
              "with the rest of this file it determines every bit of the result")
      .number("steps", &j.steps, 1, steps_most, "steps", "the job ends after this one")
      .text("precision", &j.precision, {"fp32", "bf16"},
            "bf16: operands of matrix products are rounded to it; sums and the master weights stay fp32")
      .text("sharding", &j.sharding, {"replicated", "optimizer", "gradients", "parameters"},
            "what is divided among the workers: nothing, optimizer state (ZeRO-1), gradients too (ZeRO-2), "
            "parameters too (ZeRO-3)")
      .number("replicas", &j.replicas, 1, 16, "holders",
              "of each tile where state is divided, in different failure domains; with 2 or more no single "
              "failure costs a step")
      .number("priority", &j.priority, -1000, 1000, "",
              "of two jobs that want the same workers the higher goes first")
      .text("start_from", &j.start_from, {},
            "a checkpoint of the same model: JOB, JOB@STEP or JOB:TAG. The job goes on from its step, "
            "whatever the "
            "sharding and the workers were; empty: from the seed");
  section(t, "model")
      .text("kind", &j.model.kind, {"dit"}, "diffusion transformer with adaLN-Zero")
      .number("width", &j.model.width, 8, 8192, "", "of the residual stream; a multiple of heads")
      .number("depth", &j.model.depth, 1, 128, "blocks", "")
      .number("heads", &j.model.heads, 1, 128, "", "of the attention; divides width")
      .number("patch", &j.model.patch, 1, 28, "pixels",
              "side of an image patch, one token each; divides the image's side")
      .number("mlp_ratio", &j.model.mlp_ratio, 1, 16, "", "hidden width of a block's MLP over width")
      .flag("activation_checkpointing", &j.model.activation_checkpointing,
            "keep only each block's input for the backward pass and run the block again there");
  section(t, "data")
      .text("kind", &j.data.kind, {"fashion-mnist"}, "")
      .text("folder", &j.data.folder, {}, "where the data set lies, on every machine that trains")
      .number("label_drop", &j.data.label_drop, 0, 1, "",
              "part of the labels replaced by none, which guidance needs");
  section(t, "batch")
      .number("size", &j.batch.size, 1, 65536, "samples", "a step's global batch; a multiple of slots")
      .number(
          "slots", &j.batch.slots, 1, 4096, "",
          "pieces of the batch that workers share out, a power of two; at least 4 times the workers, and 4 "
          "samples each, for speed")
      .number("pass_slots", &j.batch.pass_slots, 1, 256, "slots",
              "that run side by side in one pass where gradients or parameters are sharded: each gather "
              "serves all of them; a power of two");
  section(t, "optimizer")
      .text("kind", &j.optimizer.kind, {"adamw"}, "")
      .number("learning_rate", &j.optimizer.learning_rate, 0, 10, "", "the highest")
      .number("warmup_steps", &j.optimizer.warmup_steps, 0, steps_most, "steps",
              "linear rise from zero at the start")
      .number("decay_fraction", &j.optimizer.decay_fraction, 0, 1, "",
              "part of all steps, at the end, of linear fall to zero")
      .number("beta1", &j.optimizer.beta1, 0, 0.999999, "", "memory of the first moment")
      .number("beta2", &j.optimizer.beta2, 0, 0.999999, "", "memory of the second moment")
      .number("epsilon", &j.optimizer.epsilon, 1e-15, 1, "", "keeps the division finite")
      .number("weight_decay", &j.optimizer.weight_decay, 0, 1, "", "decoupled")
      .number("clip_norm", &j.optimizer.clip_norm, 0, 1e9, "", "largest gradient norm; 0: not clipped")
      .number("ema_decay", &j.optimizer.ema_decay, 0, 0.999999, "", "of the averaged weights that sample");
  append_checkpoint(t, j.checkpoint);
  section(t, "elastic")
      .number("min_workers", &j.elastic.min_workers, 1, 1024, "workers", "with fewer the job waits")
      .number("max_workers", &j.elastic.max_workers, 0, 100000, "workers",
              "its quota; 0: as many as there are")
      .number("spares", &j.elastic.spares, 0, 1024, "workers",
              "kept ready beside the members, to replace one that is lost or slow")
      .flag("rebalance", &j.elastic.rebalance, "slots follow the measured speed of the workers")
      .flag("evict_slow", &j.elastic.evict_slow, "a member without which steps are faster is let go")
      .number("transfer_mb_per_s", &j.elastic.transfer_mb_per_s, 0, 1e6, "MB/s",
              "of each worker, for copies to newcomers; 0: not limited")
      .number("max_skips", &j.elastic.max_skips, 1, 1e6, "steps",
              "non-finite steps in a row that end the job");
  section(t, "sample")
      .number("guidance", &j.sample.guidance, 0, 100, "", "weight of the label when sampling; 1: none")
      .number("steps", &j.sample.steps, 1, 1000, "steps", "of the solver");
  return t;
}

config_table fields_of(cluster_config& c) {
  config_table t;
  section(t, "")
      .text("host", &c.host, {}, "address to listen on and to join; beyond loopback only with tls_folder")
      .number("port", &c.port, 0, 65535, "", "coordinator, for nodes and workers; 0: any free one")
      .number("admin_port", &c.admin_port, 0, 65535, "", "coordinator, for the command line; 0: any free one")
      .text("tls_folder", &c.tls_folder, {},
            "this machine's certificates, see `perdura pki`; empty: no TLS, and loopback alone")
      .text("data_folder", &c.data_folder, {},
            "checkpoints and the coordinator's log; empty: $XDG_DATA_HOME/perdura, for root /var/lib/perdura")
      .text("log_folder", &c.log_folder, {}, "empty: $XDG_STATE_HOME/perdura/log, for root /var/log/perdura")
      .text("runtime_folder", &c.runtime_folder, {}, "empty: $XDG_RUNTIME_DIR/perdura, for root /run/perdura")
      .number("heartbeat_ms", &c.heartbeat, 10, hour_ms, "ms", "how often a process says that it lives")
      .number("lease_ms", &c.lease, 50, hour_ms, "ms",
              "silence after which a machine counts as gone; over 3 heartbeats")
      .number("step_timeout_ms", &c.step_timeout, 100, hour_ms, "ms",
              "least time without progress before a worker counts as hung; over lease_ms")
      .number("join_timeout_ms", &c.join_timeout, 100, hour_ms, "ms",
              "for a newcomer to have copied all it will hold; over step_timeout_ms")
      .number("gather_ms", &c.gather, 0, hour_ms, "ms",
              "wait for further workers before a job's first step; under join_timeout_ms")
      .number("log_bytes_max", &c.log_bytes_max, 65536, 1e12, "bytes", "a log file is rotated at this size")
      .number("log_files", &c.log_files, 1, 1000, "files", "rotated ones kept, the current one included");
  return t;
}

config_table fields_of(node_config& n) {
  config_table t;
  section(t, "labels")
      .text("host", &n.labels.host, {},
            "the machine: replicas of a tile avoid sharing it; empty: the machine that the agent runs on")
      .as("host_label")
      .text("rack", &n.labels.rack, {}, "the same for a rack; empty: shared with nobody")
      .text("zone", &n.labels.zone, {}, "the same for a zone; empty: shared with nobody");
  auto& p = n.preemption;
  section(t, "preemption")
      .number("grace_ms", &p.grace, 0, hour_ms, "ms",
              "from SIGTERM, or a notice without a time, to the machine's end; 0: SIGTERM ends at once")
      .text("notice_file", &p.notice_file, {},
            "a file whose appearance says that the machine goes; in it nothing, seconds, or a time as in RFC "
            "3339")
      .text("metadata", &p.metadata, {"none", "aws", "gcp", "azure", "url"},
            "the metadata service that says when the machine goes; url: any answer of status 200 at "
            "metadata_url")
      .text("metadata_url", &p.metadata_url, {}, "where it is, if not at the service's usual address")
      .number("poll_ms", &p.poll, 10, hour_ms, "ms", "how often file and service are asked")
      .as("notice_poll_ms")
      .number("request_timeout_ms", &p.request_timeout, 10, hour_ms, "ms", "for the service to answer")
      .as("metadata_timeout_ms");
  return t;
}

std::vector<broken_rule> broken_rules(const job_config& j) {
  std::vector<broken_rule> broken;
  auto rule = [&](bool holds, std::vector<std::string> fields, const std::string& what) {
    if (!holds) broken.push_back({std::move(fields), what});
  };
  constexpr auto letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
  rule(!j.name.empty() && j.name.size() <= 64 && j.name.find_first_not_of(letters) == std::string::npos,
       {"name"}, "must be 1 to 64 letters, digits, \"-\" or \"_\"");
  rule(j.model.width % j.model.heads == 0, {"model.heads", "model.width"},
       "is " + text(j.model.heads) + ", must divide model.width (" + text(j.model.width) + ")");
  rule(j.data.kind != "fashion-mnist" || fashion_mnist_side % j.model.patch == 0,
       {"model.patch", "data.kind"},
       "is " + text(j.model.patch) +
           ", must divide the side of fashion-mnist's images (28): 1, 2, 4, 7, 14 or 28");
  const bool is_power = std::has_single_bit(j.batch.slots);
  rule(is_power, {"batch.slots"},
       "is " + text(j.batch.slots) + ", must be a power of two, for example " +
           text(std::bit_floor(j.batch.slots)));
  rule(!is_power || j.batch.size % j.batch.slots == 0, {"batch.size", "batch.slots"},
       "is " + text(j.batch.size) + ", must be a multiple of batch.slots (" + text(j.batch.slots) + ")");
  rule(std::has_single_bit(j.batch.pass_slots), {"batch.pass_slots"},
       "is " + text(j.batch.pass_slots) + ", must be a power of two, for example " +
           text(std::bit_floor(j.batch.pass_slots)));
  rule(j.elastic.max_workers == 0 || j.elastic.max_workers >= j.elastic.min_workers,
       {"elastic.max_workers", "elastic.min_workers"},
       "is " + text(j.elastic.max_workers) + ", must be 0 or at least elastic.min_workers (" +
           text(j.elastic.min_workers) + ")");
  rule(j.optimizer.warmup_steps <= j.steps, {"optimizer.warmup_steps", "steps"},
       "is " + text(j.optimizer.warmup_steps) + ", must be at most steps (" + text(j.steps) + ")");
  return broken;
}

std::vector<broken_rule> broken_rules(const cluster_config& c) {
  std::vector<broken_rule> broken;
  if (auto allowed = check_host(c.host, !c.tls_folder.empty()); !allowed)
    broken.push_back({{"host", "tls_folder"}, allowed.failure().message});
  if (c.port == c.admin_port && c.port != 0)
    broken.push_back({{"admin_port", "port"}, "is " + text(c.port) + ", must differ from port"});
  if (c.lease <= 3 * c.heartbeat)
    broken.push_back(too_short("lease_ms", c.lease, "3 times ", "heartbeat_ms", c.heartbeat));
  if (c.step_timeout <= c.lease)
    broken.push_back(too_short("step_timeout_ms", c.step_timeout, "", "lease_ms", c.lease));
  if (c.join_timeout <= c.step_timeout)
    broken.push_back(too_short("join_timeout_ms", c.join_timeout, "", "step_timeout_ms", c.step_timeout));
  if (c.join_timeout <= c.gather)
    broken.push_back(too_short("join_timeout_ms", c.join_timeout, "", "gather_ms", c.gather));
  return broken;
}

std::vector<broken_rule> broken_rules(const node_config& n) {
  std::vector<broken_rule> broken;
  const auto check_label = [&](const char* field, const std::string& label) {
    const bool is_printable =
        std::all_of(label.begin(), label.end(), [](unsigned char c) { return c > ' ' && c != 0x7f; });
    if (label.size() > label_bytes_max || !is_printable)
      broken.push_back({{field}, "must be at most " + text(label_bytes_max) + " bytes without spaces"});
  };
  check_label("labels.host", n.labels.host);
  check_label("labels.rack", n.labels.rack);
  check_label("labels.zone", n.labels.zone);
  const auto& p = n.preemption;
  if (p.metadata == "url" && p.metadata_url.empty())
    broken.push_back({{"preemption.metadata_url", "preemption.metadata"},
                      "is empty, must be an address where preemption.metadata is \"url\""});
  if (!p.metadata_url.empty() && !p.metadata_url.starts_with("http://") &&
      !p.metadata_url.starts_with("https://"))
    broken.push_back(
        {{"preemption.metadata_url"}, "is \"" + p.metadata_url + "\", must start with http:// or https://"});
  return broken;
}

}  // namespace perdura::runtime
