#include "coordinator/admin/convert.hpp"

namespace perdura::admin {

namespace {

void put(schema::Incarnation::Builder to, const incarnation& from) {
  to.setHigh(from.high);
  to.setLow(from.low);
}
void put(schema::Era::Builder to, const era& from) {
  to.setTerm(from.term.value);
  to.setCount(from.count);
}
void put(schema::PlanId::Builder to, const plan_id& from) {
  put(to.initEra(), from.at);
  to.setSequence(from.sequence);
}

incarnation get(schema::Incarnation::Reader from) { return {from.getHigh(), from.getLow()}; }
era get(schema::Era::Reader from) { return {term_number(from.getTerm()), from.getCount()}; }
plan_id get(schema::PlanId::Reader from) { return {get(from.getEra()), from.getSequence()}; }

template <class Wire, class Enum>
Wire wire_enum(Enum value) {
  return static_cast<Wire>(value);
}

}  // namespace

std::string get(capnp::Text::Reader from) { return {from.cStr(), from.size()}; }

void put(schema::ClusterStatus::Builder to, const cluster_status& from) {
  to.setVersion(from.version);
  to.setProtocolVersion(from.protocol);
  to.setStorageFormat(from.storage_format);
  to.setTerm(from.term.value);
  put(to.initEra(), from.at);
  to.setUptimeMs(from.uptime_ms);
  to.setPid(from.pid);
  to.setPort(from.port);
  to.setAdminPort(from.admin_port);
  to.setDataFolder(from.data_folder);
  to.setLogFolder(from.log_folder);
  to.setLastEvent(from.last_event);
}

cluster_status get(schema::ClusterStatus::Reader from) {
  return {get(from.getVersion()),
          from.getProtocolVersion(),
          from.getStorageFormat(),
          term_number(from.getTerm()),
          get(from.getEra()),
          from.getUptimeMs(),
          from.getPid(),
          from.getPort(),
          from.getAdminPort(),
          get(from.getDataFolder()),
          get(from.getLogFolder()),
          from.getLastEvent()};
}

namespace {

void put(schema::Departure::Builder to, const departure& from) {
  to.setIsGoing(from.is_going);
  if (from.left_ms) to.initLeft().setMs(*from.left_ms);
  to.setWhy(from.why);
}

departure get(schema::Departure::Reader from) {
  departure d{from.getIsGoing(), {}, admin::get(from.getWhy())};
  if (auto left = from.getLeft(); left.isMs()) d.left_ms = left.getMs();
  return d;
}

}  // namespace

void put(schema::Node::Builder to, const node_info& from) {
  to.setName(from.name);
  to.setHost(from.host);
  put(to.initIncarnation(), from.who);
  to.setDevices(from.devices);
  to.setState(wire_enum<schema::NodeState>(from.state));
  to.setLastSeenMs(from.last_seen_ms);
  to.setPid(from.pid);
  to.setHostLabel(from.host_label);
  to.setRack(from.rack);
  to.setZone(from.zone);
  put(to.initLeaving(), from.leaving);
}

node_info get(schema::Node::Reader from) {
  return {get(from.getName()),
          get(from.getHost()),
          get(from.getIncarnation()),
          from.getDevices(),
          static_cast<node_state>(from.getState()),
          from.getLastSeenMs(),
          from.getPid(),
          get(from.getHostLabel()),
          get(from.getRack()),
          get(from.getZone()),
          get(from.getLeaving())};
}

void put(schema::Worker::Builder to, const worker_info& from) {
  to.setName(from.name);
  put(to.initIncarnation(), from.who);
  to.setNode(from.node);
  to.setState(wire_enum<schema::WorkerState>(from.state));
  to.setSlots(from.slots);
  to.setSlotMs(from.slot_ms);
  to.setStep(from.step.value);
  to.setPhase(from.phase);
  to.setLag(from.lag);
  to.setResidentBytes(from.resident_bytes);
  to.setPid(from.pid);
  to.setJob(from.job);
  to.setTilesOwned(from.tiles_owned);
  to.setTilesHeld(from.tiles_held);
  put(to.initLeaving(), from.leaving);
}

worker_info get(schema::Worker::Reader from) {
  return {get(from.getName()),
          get(from.getIncarnation()),
          get(from.getNode()),
          static_cast<worker_state>(from.getState()),
          from.getSlots(),
          from.getSlotMs(),
          step_number(from.getStep()),
          get(from.getPhase()),
          from.getLag(),
          from.getResidentBytes(),
          from.getPid(),
          get(from.getJob()),
          from.getTilesOwned(),
          from.getTilesHeld(),
          get(from.getLeaving())};
}

void put(schema::Job::Builder to, const job_info& from) {
  to.setId(from.id);
  to.setName(from.name);
  to.setState(wire_enum<schema::JobState>(from.state));
  to.setStep(from.step.value);
  to.setSteps(from.steps);
  to.setLoss(from.loss);
  to.setGradientNorm(from.gradient_norm);
  to.setLearningRate(from.learning_rate);
  to.setImagesPerSecond(from.images_per_s);
  put(to.initEra(), from.at);
  to.setTimeline(from.timeline.value);
  put(to.initPlan(), from.plan);
  if (from.last_checkpoint) to.initLastCheckpoint().setStep(from.last_checkpoint->value);
  to.setFinalHash(from.final_hash);
  to.setRecoveries(from.recoveries);
  to.setWhy(from.why);
  to.setPriority(from.priority);
  to.setWorkers(from.workers);
  to.setMinWorkers(from.min_workers);
  to.setMaxWorkers(from.max_workers);
}

job_info get(schema::Job::Reader from) {
  job_info job;
  job.id = get(from.getId());
  job.name = get(from.getName());
  job.state = static_cast<job_state>(from.getState());
  job.step = step_number(from.getStep());
  job.steps = from.getSteps();
  job.loss = from.getLoss();
  job.gradient_norm = from.getGradientNorm();
  job.learning_rate = from.getLearningRate();
  job.images_per_s = from.getImagesPerSecond();
  job.at = get(from.getEra());
  job.timeline = timeline_number(from.getTimeline());
  job.plan = get(from.getPlan());
  if (auto last = from.getLastCheckpoint(); last.isStep()) job.last_checkpoint = step_number(last.getStep());
  job.final_hash = get(from.getFinalHash());
  job.recoveries = from.getRecoveries();
  job.why = get(from.getWhy());
  job.priority = from.getPriority();
  job.workers = from.getWorkers();
  job.min_workers = from.getMinWorkers();
  job.max_workers = from.getMaxWorkers();
  return job;
}

void put(schema::Plan::Builder to, const plan_info& from) {
  put(to.initId(), from.id);
  auto members = to.initMembers(static_cast<unsigned>(from.members.size()));
  for (unsigned i = 0; i < members.size(); ++i) {
    const auto& share = from.members[i];
    members[i].setWorker(share.worker);
    put(members[i].initIncarnation(), share.who);
    auto blocks = members[i].initBlocks(static_cast<unsigned>(share.blocks.size()));
    for (unsigned b = 0; b < blocks.size(); ++b) {
      blocks[b].setFirst(share.blocks[b].first);
      blocks[b].setSize(share.blocks[b].size);
    }
    members[i].setTilesOwned(share.tiles_owned);
    members[i].setTilesHeld(share.tiles_held);
  }
}

plan_info get(schema::Plan::Reader from) {
  plan_info plan{get(from.getId()), {}};
  for (auto member : from.getMembers()) {
    plan_share share{get(member.getWorker()),
                     get(member.getIncarnation()),
                     {},
                     member.getTilesOwned(),
                     member.getTilesHeld()};
    for (auto b : member.getBlocks()) share.blocks.push_back({b.getFirst(), b.getSize()});
    plan.members.push_back(std::move(share));
  }
  return plan;
}

void put(schema::EventQuery::Builder to, const event_query& from) {
  to.setAfter(from.after);
  to.setLimit(from.limit);
  to.setWaitMs(from.wait_ms);
  to.setJob(from.job);
  to.setNewest(from.newest);
}

event_query get(schema::EventQuery::Reader from) {
  return {from.getAfter(), from.getLimit(), from.getWaitMs(), get(from.getJob()), from.getNewest()};
}

void put(schema::EventPage::Builder to, const event_page& from) {
  auto events = to.initEvents(static_cast<unsigned>(from.events.size()));
  for (unsigned i = 0; i < events.size(); ++i) {
    const auto& event = from.events[i];
    events[i].setSequence(event.sequence);
    events[i].setTimeMs(event.time_ms);
    events[i].setKind(event.kind);
    events[i].setJob(event.job);
    events[i].setSubject(event.subject);
    events[i].setReason(event.reason);
    auto fields = events[i].initFields(static_cast<unsigned>(event.fields.size()));
    for (unsigned f = 0; f < fields.size(); ++f) {
      fields[f].setName(event.fields[f].first);
      fields[f].setValue(event.fields[f].second);
    }
  }
  to.setNext(from.next);
  to.setFirstKept(from.first_kept);
}

event_page get(schema::EventPage::Reader from) {
  event_page page{{}, from.getNext(), from.getFirstKept()};
  for (auto e : from.getEvents()) {
    event_info event{e.getSequence(),
                     e.getTimeMs(),
                     get(e.getKind()),
                     get(e.getJob()),
                     get(e.getSubject()),
                     get(e.getReason()),
                     {}};
    for (auto f : e.getFields()) event.fields.emplace_back(get(f.getName()), get(f.getValue()));
    page.events.push_back(std::move(event));
  }
  return page;
}

void put(schema::Step::Builder to, const step_info& from) {
  to.setStep(from.step.value);
  to.setLoss(from.loss);
  to.setMs(from.ms);
}

step_info get(schema::Step::Reader from) {
  return {step_number(from.getStep()), from.getLoss(), from.getMs()};
}

void put(schema::Recovery::Builder to, const recovery_info& from) {
  to.setWhat(from.what);
  to.setKind(from.kind);
  to.setStep(from.step.value);
  to.setTimeMs(from.time_ms);
  to.setDetectedMs(from.detected_ms);
  if (from.committed_ms) to.initCommitted().setMs(*from.committed_ms);
  to.setRecomputedSlots(from.recomputed_slots);
}

recovery_info get(schema::Recovery::Reader from) {
  recovery_info recovery;
  recovery.what = get(from.getWhat());
  recovery.kind = get(from.getKind());
  recovery.step = step_number(from.getStep());
  recovery.time_ms = from.getTimeMs();
  recovery.detected_ms = from.getDetectedMs();
  if (auto committed = from.getCommitted(); committed.isMs()) recovery.committed_ms = committed.getMs();
  recovery.recomputed_slots = from.getRecomputedSlots();
  return recovery;
}

void put(schema::Checkpoint::Builder to, const checkpoint_info& from) {
  to.setJob(from.job);
  to.setStep(from.step.value);
  to.setTimeline(from.timeline.value);
  to.setBytes(from.bytes);
  to.setCreatedMs(from.created_ms);
  to.setState(wire_enum<schema::CheckpointState>(from.state));
}

checkpoint_info get(schema::Checkpoint::Reader from) {
  return {get(from.getJob()), step_number(from.getStep()), timeline_number(from.getTimeline()),
          from.getBytes(),    from.getCreatedMs(),         static_cast<checkpoint_state>(from.getState())};
}

void put(schema::Tier::Builder to, const tier_info& from) {
  to.setName(from.name);
  to.setWhere(from.where);
  to.setJob(from.job);
  to.setStep(from.step.value);
  to.setMissing(from.missing);
  to.setFailure(from.failure);
}

tier_info get(schema::Tier::Reader from) {
  return {get(from.getName()),         get(from.getWhere()), get(from.getJob()),
          step_number(from.getStep()), from.getMissing(),    get(from.getFailure())};
}

void put(schema::Submission::Builder to, const submission& from) {
  to.setJob(from.job);
  auto errors = to.initErrors(static_cast<unsigned>(from.errors.size()));
  for (unsigned i = 0; i < errors.size(); ++i) errors.set(i, from.errors[i]);
}

submission get(schema::Submission::Reader from) {
  submission s{get(from.getJob()), {}};
  for (auto line : from.getErrors()) s.errors.push_back(get(line));
  return s;
}

void put(schema::Receipt::Builder to, const receipt& from) { to.setNote(from.note); }
receipt get(schema::Receipt::Reader from) { return {get(from.getNote())}; }

void put(schema::Error::Builder to, const error& from) {
  to.setCode(static_cast<std::uint16_t>(from.code));
  to.setMessage(from.message);
}

error get(schema::Error::Reader from) {
  // A code of a newer coordinator is still an error.
  const auto code = from.getCode();
  const bool known = code > 0 && code <= static_cast<std::uint16_t>(errc::internal);
  return {known ? static_cast<errc>(code) : errc::internal, get(from.getMessage())};
}

}  // namespace perdura::admin
