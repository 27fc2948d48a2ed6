#include "coordinator/journal.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "actors/base/check.hpp"
#include "actors/base/log.hpp"
#include "actors/wire/fields.hpp"

namespace perdura::coordinator {
namespace {
struct stored_field {
  std::string name;
  std::string value;
};
struct stored_step {
  step_number step;
  double loss{};
  double ms{};
};
struct stored_event {
  std::int64_t time_ms{};
  std::string kind;
  std::string job;
  std::string subject;
  std::string reason;
  std::vector<stored_field> fields;
};
}  // namespace
}  // namespace perdura::coordinator

namespace perdura::wire {
using coordinator::stored_event;
using coordinator::stored_field;
using coordinator::stored_step;
PERDURA_WIRE_STRUCT(stored_step, 0, &stored_step::step, &stored_step::loss, &stored_step::ms)
PERDURA_WIRE_STRUCT(stored_field, 0, &stored_field::name, &stored_field::value)
PERDURA_WIRE_STRUCT(stored_event, 0, &stored_event::time_ms, &stored_event::kind, &stored_event::job,
                    &stored_event::subject, &stored_event::reason, &stored_event::fields)
}  // namespace perdura::wire

namespace perdura::coordinator {

namespace {

const std::string job_prefix = "job/";
const std::string drains_key = "drains";
std::string state_key(const std::string& job) { return "state/" + job; }
std::string newest_key(const std::string& job) { return "newest/" + job; }

std::string steps_prefix(const std::string& job) { return "steps/" + job + "/"; }
std::string steps_key(const std::string& job, std::uint64_t block) {
  char number[24];
  std::snprintf(number, sizeof number, "%012llu", static_cast<unsigned long long>(block));
  return steps_prefix(job) + number;
}

void must(const result<void>& written) {
  if (!written) log::error(written.failure().message);
  PERDURA_CHECK(written.has_value(), "the coordinator cannot write its log");
}

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

admin::event_info to_info(const storage::logged_event& logged) {
  admin::event_info info;
  info.sequence = logged.sequence;
  const auto bytes = std::as_bytes(std::span(logged.bytes.data(), logged.bytes.size()));
  auto e = wire::decode<stored_event>(bytes, "an event");
  if (!e) {
    info.kind = "unreadable";
    info.reason = e.failure().message;
    return info;
  }
  info.time_ms = e->time_ms;
  info.kind = e->kind;
  info.job = e->job;
  info.subject = e->subject;
  info.reason = e->reason;
  for (auto& f : e->fields) info.fields.emplace_back(std::move(f.name), std::move(f.value));
  return info;
}

}  // namespace

result<std::unique_ptr<journal>> journal::open(const std::filesystem::path& folder) {
  auto log = storage::decision_log::open(folder);
  if (!log) return log.failure();
  return std::unique_ptr<journal>(new journal(std::move(*log)));
}

void journal::put(const job_record& job) { must(log_->put_state(job_prefix + job.id, encode(job), true)); }

void journal::put(const std::string& job, const durable_state& state) {
  must(log_->put_state(state_key(job), encode(state), true));
}

void journal::put_newest(const std::string& job, const verdict& v) {
  must(log_->put_state(newest_key(job), encode(v), false));
}

void journal::put_steps(const std::string& job, std::uint64_t block,
                        const std::vector<admin::step_info>& steps) {
  std::vector<stored_step> stored;
  for (const auto& s : steps) stored.push_back({s.step, s.loss, s.ms});
  std::string bytes;
  wire::writer(bytes).put(stored);
  must(log_->put_state(steps_key(job, block), bytes, false));
}

result<std::vector<admin::step_info>> journal::steps_of(const std::string& job) const {
  auto rows = log_->list_states(steps_prefix(job));
  if (!rows) return rows.failure();
  std::vector<admin::step_info> all;
  for (const auto& [key, bytes] : *rows) {
    auto some =
        wire::decode<std::vector<stored_step>>(std::as_bytes(std::span(bytes.data(), bytes.size())), "steps");
    if (!some) return some.failure();
    for (const auto& s : *some) all.push_back({s.step, s.loss, s.ms});
  }
  return all;
}

result<std::vector<job_record>> journal::jobs() const {
  auto rows = log_->list_states(job_prefix);
  if (!rows) return rows.failure();
  std::vector<job_record> all;
  for (const auto& [key, bytes] : *rows) {
    auto job = decode_job(bytes);
    if (!job) return job.failure();
    all.push_back(std::move(*job));
  }
  return all;
}

result<durable_state> journal::state_of(const std::string& job) const {
  const auto bytes = log_->get_state(state_key(job));
  if (!bytes) return bytes.failure();
  if (!*bytes) return durable_state{};
  auto state = decode_state(**bytes);
  if (!state) return state;
  const auto newest = log_->get_state(newest_key(job));
  if (!newest) return newest.failure();
  if (!*newest) return state;
  const auto v = decode_verdict(**newest);
  if (!v) return v.failure();
  if (v->timeline == state->timeline && (!state->newest || state->newest->step < v->step)) state->newest = *v;
  return state;
}

void journal::put(const std::vector<drain_entry>& drains) {
  must(log_->put_state(drains_key, encode(drains), true));
}

result<std::vector<drain_entry>> journal::drains() const {
  const auto bytes = log_->get_state(drains_key);
  if (!bytes) return bytes.failure();
  if (!*bytes) return std::vector<drain_entry>{};
  return decode_drains(**bytes);
}

void journal::note(const std::string& job, const event& e) {
  log::info(std::string(to_string(e.kind)) + " " + e.subject + ": " + e.reason);
  stored_event stored{unix_ms(), to_string(e.kind), job, e.subject, e.reason, {}};
  for (const auto& [name, value] : e.fields) stored.fields.push_back({name, value});
  std::string bytes;
  wire::writer(bytes).put(stored);
  if (const auto written = log_->append_event(bytes); !written) log::error(written.failure().message);
}

result<admin::event_page> journal::read(const admin::event_query& query) const {
  admin::event_page page;
  const auto last = log_->last_sequence();
  const auto limit = std::max<std::uint32_t>(1, query.limit);
  auto from = query.after + 1;
  if (query.newest) from = last >= limit ? last - limit + 1 : 1;
  page.next = query.newest ? last : query.after;
  const auto oldest = log_->read_events(1, 1);
  if (!oldest) return oldest.failure();
  page.first_kept = oldest->empty() ? last + 1 : oldest->front().sequence;
  while (page.events.size() < limit && from <= last) {
    const auto some = log_->read_events(from, limit);
    if (!some) return some.failure();
    if (some->empty()) break;
    for (const auto& logged : *some) {
      if (page.events.size() == limit) break;
      page.next = logged.sequence;
      auto info = to_info(logged);
      if (query.job.empty() || info.job == query.job) page.events.push_back(std::move(info));
    }
    from = page.next + 1;
  }
  return page;
}

}  // namespace perdura::coordinator
