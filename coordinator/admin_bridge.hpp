// The admin service over the coordinator actor: each call is run on the coordinator's thread and waited for.
#pragma once

#include <functional>
#include <future>
#include <memory>

#include "coordinator/admin/service.hpp"
#include "coordinator/coordinator_shell.hpp"

namespace perdura::coordinator {

class admin_bridge : public admin::admin_service {
 public:
  using poster = std::function<void(std::function<void(coordinator_shell&)>)>;
  explicit admin_bridge(poster post) : post_(std::move(post)) {}

  result<admin::cluster_status> status() override;
  result<std::vector<admin::node_info>> nodes() override;
  result<std::vector<admin::worker_info>> workers() override;
  result<std::vector<admin::job_info>> jobs() override;
  result<admin::plan_info> plan(const std::string& job) override;
  result<admin::event_page> events(const admin::event_query& query) override;
  result<std::vector<admin::step_info>> steps(const std::string& job, step_number from,
                                              std::uint32_t limit) override;
  result<std::vector<admin::recovery_info>> recoveries(const std::string& job) override;
  result<std::vector<admin::checkpoint_info>> checkpoints(const std::string& job) override;
  result<std::vector<admin::tier_info>> tiers() override;
  result<admin::submission> submit(const std::string& text, const std::string& file) override;
  result<admin::receipt> pause(const std::string& job) override;
  result<admin::receipt> resume(const std::string& job) override;
  result<admin::receipt> cancel(const std::string& job) override;
  result<admin::receipt> drain(const std::string& name,
                               std::optional<std::chrono::milliseconds> within) override;
  result<admin::receipt> kill(const std::string& worker) override;
  result<admin::receipt> checkpoint_now(const std::string& job) override;
  result<admin::receipt> collect_garbage(const std::string& job, bool dry_run) override;
  result<admin::receipt> rebuild_index() override;
  result<admin::receipt> shutdown() override;
  void audit(const admin::audit_entry& entry) override;

 private:
  template <class T, class F>
  result<T> call(F question);
  poster post_;
};

}  // namespace perdura::coordinator
