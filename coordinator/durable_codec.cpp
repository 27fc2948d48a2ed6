#include "coordinator/durable_codec.hpp"

#include "actors/wire/fields.hpp"

namespace perdura::wire {
using namespace perdura::coordinator;
PERDURA_WIRE_ENUM(job_stage, cancelled)
PERDURA_WIRE_STRUCT(job_record, 0, &job_record::id, &job_record::text, &job_record::stage, &job_record::why,
                    &job_record::final_hash, &job_record::tiles, &job_record::recoveries,
                    &job_record::on_hold, &job_record::stopping)
PERDURA_WIRE_STRUCT(drain_entry, 0, &drain_entry::who, &drain_entry::name, &drain_entry::gone_unix_ms,
                    &drain_entry::why)
PERDURA_WIRE_STRUCT(drain_record, 0, &drain_record::who, &drain_record::within_ms, &drain_record::is_slow,
                    &drain_record::why)
PERDURA_WIRE_STRUCT(durable_state, 0, &durable_state::at, &durable_state::timeline, &durable_state::recovery,
                    &durable_state::started, &durable_state::current, &durable_state::pending,
                    &durable_state::releasing, &durable_state::draining, &durable_state::fenced,
                    &durable_state::newest, &durable_state::sequence, &durable_state::wanted,
                    &durable_state::ended, &durable_state::numeric_class, &durable_state::members_most)
}  // namespace perdura::wire

namespace perdura::coordinator {

namespace {

// Each entry starts with the format's version, so that a later build can tell what it reads.
constexpr std::uint32_t format_version = 3;

template <class T>
std::string with_version(const T& x) {
  std::string bytes;
  wire::writer out(bytes);
  out.put(format_version);
  out.put(x);
  return bytes;
}

template <class T>
result<T> read(std::string_view bytes, const char* what) {
  const auto all = std::as_bytes(std::span(bytes.data(), bytes.size()));
  wire::reader in(all);
  std::uint32_t version = 0;
  in.get(version);
  if (in.failed() || version != format_version)
    return error{errc::version_mismatch, std::string("cannot read ") + what + ": it is of format " +
                                             std::to_string(version) + ", this build reads " +
                                             std::to_string(format_version)};
  return wire::decode<T>(all.subspan(in.position()), what);
}

}  // namespace

std::string encode(const job_record& job) { return with_version(job); }
std::string encode(const durable_state& state) { return with_version(state); }
std::string encode(const verdict& v) { return with_version(v); }
std::string encode(const std::vector<drain_entry>& drains) { return with_version(drains); }
result<job_record> decode_job(std::string_view bytes) { return read<job_record>(bytes, "a job's record"); }
result<durable_state> decode_state(std::string_view bytes) {
  return read<durable_state>(bytes, "the coordinator's state");
}
result<verdict> decode_verdict(std::string_view bytes) { return read<verdict>(bytes, "a verdict"); }

result<std::vector<drain_entry>> decode_drains(std::string_view bytes) {
  return read<std::vector<drain_entry>>(bytes, "the nodes that are drained");
}

}  // namespace perdura::coordinator
