#include "coordinator/console/tables.hpp"

namespace perdura::console {

using namespace admin;

namespace {

value text(std::string_view s) { return value(boost::json::string(s)); }

value optional_step(const std::optional<step_number>& step) {
  return step ? value(step->value) : value(nullptr);
}

value time_left(const departure& d) { return d.left_ms ? value(*d.left_ms) : value(nullptr); }

std::string labels_text(const node_info& n) {
  std::string all;
  for (const auto& [name, label] : {std::pair{"host", &n.host_label}, {"rack", &n.rack}, {"zone", &n.zone}})
    if (!label->empty()) all += (all.empty() ? "" : " ") + std::string(name) + "=" + *label;
  return all;
}

value pid(std::uint32_t id) { return id == 0 ? value(nullptr) : value(id); }

}  // namespace

record cluster_record(const cluster_status& s) {
  return {{{{"version", "version"}, text(s.version)},
           {{"protocol_version", "protocol"}, s.protocol},
           {{"storage_format", "storage format"}, s.storage_format},
           {{"term", "term"}, s.term.value},
           {{"era", "era"}, text(to_string(s.at))},
           {{"uptime_ms", "up for", unit::milliseconds}, s.uptime_ms},
           {{"pid", "process"}, pid(s.pid)},
           {{"port", "port"}, s.port},
           {{"admin_port", "admin port"}, s.admin_port},
           {{"data_folder", "data"}, text(s.data_folder)},
           {{"log_folder", "logs"}, text(s.log_folder)},
           {{"last_event", ""}, s.last_event}}};
}

table nodes_table(const std::vector<node_info>& nodes) {
  table t{{{"name", "NODE"},
           {"state", "STATE", unit::state},
           {"host", "HOST"},
           {"devices", "DEVICES", unit::number},
           {"last_seen_ms", "LAST SEEN", unit::milliseconds},
           {"", "LABELS"},
           {"gone_in_ms", "GONE IN", unit::milliseconds},
           {"leaving_because", "BECAUSE"},
           {"pid", "PROCESS", unit::number},
           {"incarnation", ""},
           {"is_going", ""},
           {"host_label", ""},
           {"rack", ""},
           {"zone", ""}},
          {},
          "no node has joined: perdura node --join HOST:PORT"};
  for (const auto& n : nodes)
    t.rows.push_back({text(n.name), text(to_string(n.state)), text(n.host), n.devices, n.last_seen_ms,
                      text(labels_text(n)), time_left(n.leaving), text(n.leaving.why), pid(n.pid),
                      text(to_string(n.who)), n.leaving.is_going, text(n.host_label), text(n.rack),
                      text(n.zone)});
  return t;
}

table workers_table(const std::vector<worker_info>& workers) {
  table t{{{"name", "WORKER"},
           {"state", "STATE", unit::state},
           {"job", "JOB"},
           {"node", ""},
           {"slots", "SLOTS", unit::number},
           {"slot_ms", "A SLOT", unit::milliseconds},
           {"tiles_owned", "TILES", unit::number},
           {"tiles_held", "HELD", unit::number},
           {"step", "STEP", unit::number},
           {"phase", "PHASE"},
           {"lag", "LAG", unit::number},
           {"resident_bytes", "MEMORY", unit::bytes},
           {"gone_in_ms", "GONE IN", unit::milliseconds},
           {"pid", "PROCESS", unit::number},
           {"incarnation", ""},
           {"is_going", ""},
           {"leaving_because", ""}},
          {},
          "no worker has joined"};
  for (const auto& w : workers)
    t.rows.push_back({text(w.name), text(to_string(w.state)), text(w.job), text(w.node), w.slots,
                      number(w.slot_ms), w.tiles_owned, w.tiles_held, w.step.value, text(w.phase), w.lag,
                      w.resident_bytes, time_left(w.leaving), pid(w.pid), text(to_string(w.who)),
                      w.leaving.is_going, text(w.leaving.why)});
  return t;
}

table jobs_table(const std::vector<job_info>& jobs) {
  table t{{{"id", "JOB"},
           {"name", "NAME"},
           {"state", "STATE", unit::state},
           {"priority", "PRIORITY", unit::number},
           {"workers", "WORKERS", unit::number},
           {"step", "STEP", unit::number},
           {"steps", "OF", unit::number},
           {"loss", "LOSS", unit::number},
           {"images_per_s", "IMAGES/S", unit::number},
           {"last_checkpoint", "CHECKPOINT", unit::number},
           {"recoveries", "RECOVERIES", unit::number},
           {"why", "WHY"}},
          {},
          "no job yet: perdura submit FILE"};
  for (const auto& j : jobs)
    t.rows.push_back({text(j.id), text(j.name), text(to_string(j.state)), j.priority, j.workers, j.step.value,
                      j.steps, number(j.loss), number(j.images_per_s), optional_step(j.last_checkpoint),
                      j.recoveries, text(j.why)});
  return t;
}

record job_record(const job_info& j) {
  return {{{{"id", "job"}, text(j.id)},
           {{"name", "name"}, text(j.name)},
           {{"state", "state", unit::state}, text(to_string(j.state))},
           {{"why", "why"}, text(j.why)},
           {{"step", "step"}, j.step.value},
           {{"steps", "of"}, j.steps},
           {{"loss", "loss", unit::number}, number(j.loss)},
           {{"gradient_norm", "gradient norm", unit::number}, number(j.gradient_norm)},
           {{"learning_rate", "learning rate", unit::number}, number(j.learning_rate)},
           {{"images_per_s", "images/s", unit::number}, number(j.images_per_s)},
           {{"era", "era"}, text(to_string(j.at))},
           {{"timeline", "timeline"}, j.timeline.value},
           {{"plan", "plan"}, text(to_string(j.plan))},
           {{"last_checkpoint", "last checkpoint"}, optional_step(j.last_checkpoint)},
           {{"recoveries", "recoveries"}, j.recoveries},
           {{"priority", "priority"}, j.priority},
           {{"workers", "workers"}, j.workers},
           {{"min_workers", "at least"}, j.min_workers},
           {{"max_workers", "at most"}, j.max_workers == 0 ? value(nullptr) : value(j.max_workers)},
           {{"final_hash", "final hash"}, text(j.final_hash)}}};
}

table plan_table(const plan_info& plan) {
  table t{{{"worker", "WORKER"},
           {"slots", "SLOTS", unit::number},
           {"blocks", "BLOCKS"},
           {"tiles_owned", "OWNS", unit::number},
           {"tiles_held", "HOLDS", unit::number},
           {"incarnation", ""}},
          {},
          "no plan"};
  for (const auto& m : plan.members) {
    boost::json::array blocks;
    std::uint32_t slots = 0;
    for (const auto& b : m.blocks) {
      blocks.push_back(text(to_string(b)));
      slots += b.size;
    }
    t.rows.push_back({text(m.worker), slots, blocks, m.tiles_owned, m.tiles_held, text(to_string(m.who))});
  }
  return t;
}

table events_table(const std::vector<event_info>& events) {
  table t{{{"sequence", "", unit::number},
           {"time_ms", "TIME", unit::date},
           {"kind", "EVENT"},
           {"job", "JOB"},
           {"subject", "SUBJECT"},
           {"reason", "REASON"},
           {"", "NUMBERS"},
           {"fields", ""}},
          {},
          "no events"};
  for (const auto& e : events) {
    boost::json::object fields;
    std::string numbers;
    for (const auto& [name, content] : e.fields) {
      fields[name] = content;
      numbers += (numbers.empty() ? "" : " ") + name + "=" + content;
    }
    t.rows.push_back({e.sequence, e.time_ms, text(e.kind), text(e.job), text(e.subject), text(e.reason),
                      text(numbers), fields});
  }
  return t;
}

table steps_table(const std::vector<step_info>& steps) {
  table t{
      {{"step", "STEP", unit::number}, {"loss", "LOSS", unit::number}, {"ms", "TIME", unit::milliseconds}},
      {},
      "no steps yet"};
  for (const auto& s : steps) t.rows.push_back({s.step.value, number(s.loss), number(s.ms)});
  return t;
}

table recoveries_table(const std::vector<recovery_info>& recoveries) {
  table t{{{"time_ms", "TIME", unit::date},
           {"what", "WHAT"},
           {"kind", "KIND"},
           {"step", "STEP", unit::number},
           {"detected_ms", "NOTICED IN", unit::milliseconds},
           {"committed_ms", "NEXT STEP IN", unit::milliseconds},
           {"recomputed_slots", "SLOTS REDONE", unit::number}},
          {},
          "no recoveries"};
  for (const auto& r : recoveries)
    t.rows.push_back({r.time_ms, text(r.what), text(r.kind), r.step.value, number(r.detected_ms),
                      r.committed_ms ? number(*r.committed_ms) : value(nullptr), r.recomputed_slots});
  return t;
}

table checkpoints_table(const std::vector<checkpoint_info>& checkpoints) {
  table t{{{"job", "JOB"},
           {"step", "STEP", unit::number},
           {"timeline", "TIMELINE", unit::number},
           {"state", "STATE", unit::state},
           {"bytes", "SIZE", unit::bytes},
           {"created_ms", "CREATED", unit::date}},
          {},
          "no checkpoints yet"};
  for (const auto& c : checkpoints)
    t.rows.push_back(
        {text(c.job), c.step.value, c.timeline.value, text(to_string(c.state)), c.bytes, c.created_ms});
  return t;
}

table tiers_table(const std::vector<tier_info>& tiers) {
  table t{{{"tier", "TIER"},
           {"where", "WHERE"},
           {"job", "JOB"},
           {"step", "STEP", unit::number},
           {"missing", "MISSING", unit::number},
           {"failure", "FAILS"}},
          {},
          "none is configured"};
  for (const auto& i : tiers)
    t.rows.push_back({text(i.name), text(i.where), text(i.job),
                      i.job.empty() ? value(nullptr) : value(i.step.value), i.missing, text(i.failure)});
  return t;
}

}  // namespace perdura::console
