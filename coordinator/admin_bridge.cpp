#include "coordinator/admin_bridge.hpp"

namespace perdura::coordinator {

namespace {
constexpr std::chrono::seconds patience{2};
time_point now() { return std::chrono::steady_clock::now(); }
}  // namespace

template <class T, class F>
result<T> admin_bridge::call(F question) {
  auto answer = std::make_shared<std::promise<result<T>>>();
  auto waiting = answer->get_future();
  post_([answer, question = std::move(question)](coordinator_shell& c) { answer->set_value(question(c)); });
  if (waiting.wait_for(patience) != std::future_status::ready)
    return error{errc::timeout,
                 "the coordinator is busy: no answer within " + std::to_string(patience.count()) + " s"};
  return waiting.get();
}

result<admin::cluster_status> admin_bridge::status() {
  return call<admin::cluster_status>([](auto& c) { return c.status(); });
}
result<std::vector<admin::node_info>> admin_bridge::nodes() {
  return call<std::vector<admin::node_info>>([](auto& c) { return c.nodes(now()); });
}
result<std::vector<admin::worker_info>> admin_bridge::workers() {
  return call<std::vector<admin::worker_info>>([](auto& c) { return c.workers(); });
}
result<std::vector<admin::job_info>> admin_bridge::jobs() {
  return call<std::vector<admin::job_info>>([](auto& c) { return c.jobs(); });
}
result<admin::plan_info> admin_bridge::plan(const std::string& job) {
  return call<admin::plan_info>([job](auto& c) { return c.plan(job); });
}
result<admin::event_page> admin_bridge::events(const admin::event_query& query) {
  return call<admin::event_page>([query](auto& c) { return c.events(query); });
}
result<std::vector<admin::step_info>> admin_bridge::steps(const std::string& job, step_number from,
                                                          std::uint32_t limit) {
  return call<std::vector<admin::step_info>>([=](auto& c) { return c.steps(job, from, limit); });
}
result<std::vector<admin::recovery_info>> admin_bridge::recoveries(const std::string& job) {
  return call<std::vector<admin::recovery_info>>([job](auto& c) { return c.recoveries(job); });
}
result<std::vector<admin::checkpoint_info>> admin_bridge::checkpoints(const std::string& job) {
  return call<std::vector<admin::checkpoint_info>>([job](auto& c) { return c.checkpoints(job); });
}
result<std::vector<admin::tier_info>> admin_bridge::tiers() {
  return call<std::vector<admin::tier_info>>(
      [](auto& c) { return result<std::vector<admin::tier_info>>(c.tiers()); });
}
result<admin::submission> admin_bridge::submit(const std::string& text, const std::string& file) {
  return call<admin::submission>([=](auto& c) { return c.submit(text, file); });
}
result<admin::receipt> admin_bridge::pause(const std::string& job) {
  return call<admin::receipt>([job](auto& c) { return c.pause(job, now()); });
}
result<admin::receipt> admin_bridge::resume(const std::string& job) {
  return call<admin::receipt>([job](auto& c) { return c.resume(job, now()); });
}
result<admin::receipt> admin_bridge::cancel(const std::string& job) {
  return call<admin::receipt>([job](auto& c) { return c.cancel(job, now()); });
}
result<admin::receipt> admin_bridge::drain(const std::string& name,
                                           std::optional<std::chrono::milliseconds> within) {
  return call<admin::receipt>([=](auto& c) { return c.drain(name, within, now()); });
}
result<admin::receipt> admin_bridge::kill(const std::string& worker) {
  return call<admin::receipt>([worker](auto& c) { return c.kill(worker); });
}
result<admin::receipt> admin_bridge::checkpoint_now(const std::string& job) {
  return call<admin::receipt>([job](auto& c) { return c.checkpoint_now(job, now()); });
}
result<admin::receipt> admin_bridge::collect_garbage(const std::string& job, bool dry_run) {
  return call<admin::receipt>([=](auto& c) { return c.collect_garbage(job, dry_run); });
}
result<admin::receipt> admin_bridge::rebuild_index() {
  return call<admin::receipt>([](auto& c) { return result<admin::receipt>(c.rebuild_index()); });
}
result<admin::receipt> admin_bridge::shutdown() {
  return call<admin::receipt>([](auto& c) { return c.shut_down(); });
}
void admin_bridge::audit(const admin::audit_entry& entry) {
  post_([entry](coordinator_shell& c) { c.audit(entry); });
}

}  // namespace perdura::coordinator
