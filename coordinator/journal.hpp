// The coordinator's durable memory by name: its jobs, each job's state, the event log.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/admin/service.hpp"
#include "coordinator/durable_codec.hpp"
#include "coordinator/logic/event.hpp"
#include "storage/index/decision_log.hpp"

namespace perdura::coordinator {

class journal {
 public:
  static result<std::unique_ptr<journal>> open(const std::filesystem::path& folder);

  // Durable on return; failing to write ends the process: nothing may be sent that is not written down.
  void put(const job_record& job);
  void put(const std::string& job, const durable_state& state);
  // Survives the process but is synced only with the next of the above: a verdict can be learnt again from
  // workers.
  void put_newest(const std::string& job, const verdict& v);

  // A block of the job's course, by number; rewritten as it grows.
  void put_steps(const std::string& job, std::uint64_t block, const std::vector<admin::step_info>& steps);
  result<std::vector<admin::step_info>> steps_of(const std::string& job) const;

  result<std::vector<job_record>> jobs() const;  // by id
  result<durable_state> state_of(const std::string& job) const;

  void put(const std::vector<drain_entry>& drains);
  result<std::vector<drain_entry>> drains() const;

  void note(const std::string& job, const event& e);
  result<admin::event_page> read(const admin::event_query& query) const;
  std::uint64_t last_event() const { return log_->last_sequence(); }

 private:
  explicit journal(std::unique_ptr<storage::decision_log> log) : log_(std::move(log)) {}
  std::unique_ptr<storage::decision_log> log_;
};

}  // namespace perdura::coordinator
