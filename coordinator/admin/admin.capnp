@0x9a13f081611d236b;
# The admin protocol: what a person, a script or a dashboard asks of the coordinator.
#
# Versions: fields and methods are only added, never renumbered or reused. apiVersion rises when an old client would
# misread an answer; the server refuses clients of another apiVersion by name. Enumerants may be added: a client shows
# one that it does not know as "unknown".

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("perdura::admin::schema");

const apiVersion :UInt32 = 1;

# ---- sessions ---------------------------------------------------------------------------------------------------

interface Gate {
  # The bootstrap capability. What a login may do is the capabilities that it gets: a role is a choice of them.
  login @0 (hello :Hello) -> Reply(Session);
}

struct Hello {
  apiVersion @0 :UInt32;
  client @1 :Text;  # for the log, as "perdura 0.1.0"
  token @2 :Data;   # empty on loopback
}

struct Session {
  apiVersion @0 :UInt32;
  observer @1 :Observer;  # reads
  operator @2 :Operator;  # writes; null where the role has none
}

struct Reply(T) {
  union {
    value @0 :T;
    error @1 :Error;
  }
}

struct Error {
  code @0 :UInt16;    # perdura::errc
  message @1 :Text;   # one line a person can act on
}

# ---- reads ------------------------------------------------------------------------------------------------------

interface Observer {
  status @0 () -> Reply(ClusterStatus);
  nodes @1 () -> Reply(List(Node));
  workers @2 () -> Reply(List(Worker));
  jobs @3 () -> Reply(List(Job));
  plan @4 (job :Text) -> Reply(Plan);
  events @5 (query :EventQuery) -> Reply(EventPage);
  steps @6 (job :Text, from :UInt64, limit :UInt32) -> Reply(List(Step));
  recoveries @7 (job :Text) -> Reply(List(Recovery));
  checkpoints @8 (job :Text) -> Reply(List(Checkpoint));
  tiers @9 () -> Reply(List(Tier));
}

struct Incarnation {
  high @0 :UInt64;
  low @1 :UInt64;
}

struct Era {
  term @0 :UInt32;
  count @1 :UInt32;
}

struct PlanId {
  era @0 :Era;
  sequence @1 :UInt32;
}

struct ClusterStatus {
  version @0 :Text;
  protocolVersion @1 :UInt32;
  storageFormat @2 :UInt32;
  term @3 :UInt32;
  era @4 :Era;
  uptimeMs @5 :UInt64;
  pid @6 :UInt32;
  port @7 :UInt16;
  adminPort @8 :UInt16;
  dataFolder @9 :Text;
  logFolder @10 :Text;
  lastEvent @11 :UInt64;
}

enum NodeState { joining @0; up @1; suspect @2; draining @3; gone @4; }

struct Node {
  name @0 :Text;
  host @1 :Text;
  incarnation @2 :Incarnation;
  devices @3 :UInt32;
  state @4 :NodeState;
  lastSeenMs @5 :UInt64;  # since its last heartbeat
  pid @6 :UInt32;
  hostLabel @7 :Text;
  rack @8 :Text;
  zone @9 :Text;
  leaving @10 :Departure;
}

# Of a node or worker that is to be used no more.
struct Departure {
  isGoing @0 :Bool;
  left :union { unlimited @1 :Void; ms @2 :UInt64; }  # until its machine is gone
  why @3 :Text;
}

enum WorkerState { joining @0; idle @1; learning @2; member @3; leaving @4; fenced @5; dead @6; }

struct Worker {
  name @0 :Text;
  incarnation @1 :Incarnation;
  node @2 :Text;
  state @3 :WorkerState;
  slots @4 :UInt32;
  slotMs @5 :Float64;
  step @6 :UInt64;
  phase @7 :Text;
  lag @8 :UInt64;
  residentBytes @9 :UInt64;
  pid @10 :UInt32;
  job @11 :Text;
  tilesOwned @12 :UInt32;
  tilesHeld @13 :UInt32;
  leaving @14 :Departure;
}

enum JobState {
  waiting @0; starting @1; running @2; paused @3; recovering @4; finished @5; failed @6; cancelled @7;
}

struct Job {
  id @0 :Text;
  name @1 :Text;
  state @2 :JobState;
  step @3 :UInt64;
  steps @4 :UInt64;
  loss @5 :Float64;
  gradientNorm @6 :Float64;
  learningRate @7 :Float64;
  imagesPerSecond @8 :Float64;
  era @9 :Era;
  timeline @10 :UInt32;
  plan @11 :PlanId;
  lastCheckpoint :union { none @12 :Void; step @13 :UInt64; }
  finalHash @14 :Text;
  recoveries @15 :UInt32;
  why @16 :Text;
  priority @17 :Int32;
  workers @18 :UInt32;
  minWorkers @19 :UInt32;
  maxWorkers @20 :UInt32;  # 0: no quota
}

struct Block {
  first @0 :UInt32;
  size @1 :UInt32;
}

struct PlanMember {
  worker @0 :Text;
  incarnation @1 :Incarnation;
  blocks @2 :List(Block);
  tilesOwned @3 :UInt32;
  tilesHeld @4 :UInt32;
}

struct Plan {
  id @0 :PlanId;
  members @1 :List(PlanMember);
}

struct EventQuery {
  after @0 :UInt64;   # events of a higher sequence; 0: from the oldest kept
  limit @1 :UInt32;   # of events in the answer
  waitMs @2 :UInt32;  # hold the answer this long while there is no event
  job @3 :Text;       # of this job only; empty: all
  newest @4 :Bool;    # the last `limit` events; `after` and `waitMs` are ignored
}

struct EventPage {
  events @0 :List(Event);
  next @1 :UInt64;       # pass it as `after` to go on
  firstKept @2 :UInt64;  # the oldest sequence that the log still holds
}

struct Event {
  sequence @0 :UInt64;
  timeMs @1 :Int64;  # Unix time
  kind @2 :Text;
  job @3 :Text;
  subject @4 :Text;
  reason @5 :Text;
  fields @6 :List(Field);
}

struct Field {
  name @0 :Text;
  value @1 :Text;
}

struct Step {
  step @0 :UInt64;
  loss @1 :Float64;
  ms @2 :Float64;
}

struct Recovery {
  what @0 :Text;
  kind @1 :Text;
  step @2 :UInt64;
  timeMs @3 :Int64;       # Unix time of the first sign
  detectedMs @4 :Float64;
  committed :union { pending @5 :Void; ms @6 :Float64; }
  recomputedSlots @7 :UInt64;
}

enum CheckpointState { writing @0; committed @1; condemned @2; }

struct Checkpoint {
  job @0 :Text;
  step @1 :UInt64;
  timeline @2 :UInt32;
  bytes @3 :UInt64;
  createdMs @4 :Int64;  # Unix time
  state @5 :CheckpointState;
}

# Where checkpoints go besides the coordinator's own store; of each job there, a row.
struct Tier {
  name @0 :Text;
  where @1 :Text;
  job @2 :Text;         # empty: there is nothing yet
  step @3 :UInt64;      # of the newest that is there
  missing @4 :UInt32;   # checkpoints of all jobs that are not there yet
  failure @5 :Text;     # of the last attempt; empty: it succeeded
}

# ---- writes -----------------------------------------------------------------------------------------------------

interface Operator {
  # Every call is audited: who, what, on what, how it ended.
  submit @0 (text :Text, file :Text) -> Reply(Submission);
  pause @1 (job :Text) -> Reply(Receipt);
  resume @2 (job :Text) -> Reply(Receipt);
  cancel @3 (job :Text) -> Reply(Receipt);
  drain @4 (name :Text, withinMs :UInt64) -> Reply(Receipt);  # 0: no deadline
  kill @5 (worker :Text) -> Reply(Receipt);
  checkpointNow @6 (job :Text) -> Reply(Receipt);
  shutdown @7 () -> Reply(Receipt);
  # Both go on in the background; how they end is an event, store_tended.
  collectGarbage @8 (job :Text, dryRun :Bool) -> Reply(Receipt);
  rebuildIndex @9 () -> Reply(Receipt);
}

struct Submission {
  job @0 :Text;            # its id; empty when there are errors
  errors @1 :List(Text);   # each with file, line, field and what is allowed
}

struct Receipt {
  note @0 :Text;  # what will happen now, for people
}
