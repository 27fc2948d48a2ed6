#include "worker/node/worker_keeper.hpp"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "actors/base/log.hpp"
#include "actors/runtime/incarnation.hpp"

namespace perdura::worker {
namespace {

using std::chrono::milliseconds;

std::string file_part(std::string name) {
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

void put_aside_if_large(const std::string& output) {
  std::error_code failed;
  if (std::filesystem::file_size(output, failed) > output_bytes_max && !failed)
    std::filesystem::rename(output, output + ".1", failed);
}

}  // namespace

worker_keeper::worker_keeper(keeper_options options) : options_(std::move(options)), fault_(options_.fault) {
  places_.resize(options_.devices);
  for (std::size_t i = 0; i < places_.size(); ++i) places_[i].name = options_.name + "/" + std::to_string(i);
}

void worker_keeper::start_missing() {
  for (auto& p : places_)
    if (!p.child) p.due = clock::time_point::min();
  start_due();
}

bool worker_keeper::kill(const incarnation& life) {
  for (auto& p : places_)
    if (p.child && p.life == life) return p.killed = children_.kill(*p.child).has_value();
  return false;
}

void worker_keeper::stop() {
  holding_ = true;
  stopping_ = true;
  for (auto& p : places_)
    if (p.child) p.killed = children_.terminate(*p.child, options_.grace).has_value();
}

std::vector<perdura::child_exit> worker_keeper::look_after(milliseconds patience) {
  start_due();
  std::vector<perdura::child_exit> exits;
  for (const auto& e : children_.wait(until_next_start(patience))) {
    const auto p = std::find_if(places_.begin(), places_.end(),
                                [&](const place& at) { return at.child == std::optional(e.child); });
    PERDURA_CHECK(p != places_.end(), "each child has its place");
    exits.push_back(record(*p, e));
  }
  return exits;
}

void worker_keeper::start_due() {
  if (holding_) return;
  for (auto& p : places_)
    if (!p.child && p.due <= clock::now()) start(p);
}

milliseconds worker_keeper::until_next_start(milliseconds patience) const {
  auto wait = patience;
  if (holding_) return wait;
  for (const auto& p : places_)
    if (!p.child) wait = std::min(wait, std::chrono::ceil<milliseconds>(p.due - clock::now()));
  return std::max(wait, milliseconds(0));
}

void worker_keeper::start(place& p) {
  p.life = runtime::random_incarnation();
  p.killed = false;
  const auto spec = command_for(p);
  put_aside_if_large(spec.output);
  const auto child = children_.start(spec);
  if (!child) {
    const auto again = p.policy.on_exit(milliseconds(0), child.failure().message);
    p.due = clock::now() + again.delay;
    log::error(again.reason);
    return;
  }
  if (&p == &places_.front()) fault_.clear();
  p.child = *child;
  ++alive_;
  log::info("worker " + p.name + " started: life " + short_name(p.life) + ", pid " +
            std::to_string(children_.pid_of(*child)));
}

child_spec worker_keeper::command_for(const place& p) {
  const auto& to = options_.coordinator;
  const auto host = to.host.find(':') == std::string::npos ? to.host : "[" + to.host + "]";
  child_spec spec;
  spec.name = "worker " + p.name;
  spec.argv = {options_.program,
               "--coordinator",
               host + ":" + std::to_string(to.port),
               "--name",
               p.name,
               "--node",
               to_string(options_.node),
               "--incarnation",
               to_string(p.life),
               "--log",
               options_.log_folder};
  if (!options_.host.empty()) spec.argv.insert(spec.argv.end(), {"--host", options_.host});
  if (!options_.tls_folder.empty()) spec.argv.insert(spec.argv.end(), {"--tls", options_.tls_folder});
  if (&p == &places_.front() && !fault_.empty()) spec.argv.insert(spec.argv.end(), {"--fault", fault_});
  spec.output = options_.log_folder + "/worker-" + file_part(p.name) + ".out";
  return spec;
}

perdura::child_exit worker_keeper::record(place& p, const child_exit& e) {
  p.child.reset();
  --alive_;
  const auto who =
      "worker " + p.name + " (life " + short_name(p.life) + ", pid " + std::to_string(e.pid) + ") ";
  if (holding_) {
    log::info(who + e.words);
  } else {
    const auto again = p.policy.on_exit(e.lived, e.words);
    p.due = clock::now() + again.delay;
    log::warn(who + again.reason);
  }
  return {options_.node, p.life, e.words, p.killed};
}

}  // namespace perdura::worker
