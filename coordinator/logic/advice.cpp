// Where a job's settings gain nothing, in sentences.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>

#include "coordinator/logic/failure_domains.hpp"
#include "coordinator/logic/forecast.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::uint32_t slots_a_worker = 4;  // fewer, and whole slots are too coarse to share out
constexpr double worth_saying = 0.02;

const char* name_of(sharding_level level) {
  static constexpr std::array names{"replicated", "optimizer", "gradients", "parameters"};
  return names[static_cast<std::size_t>(level)];
}

std::string percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f%%", part * 100);
  return text.data();
}

std::string in_mib(std::uint64_t bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f MiB", static_cast<double>(bytes) / (1 << 20));
  return text.data();
}

std::string count(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

struct view {
  const std::vector<job_forecast>& levels;
  const job_config& job;
  const std::vector<candidate>& workers;
  const std::vector<std::string>& names;
  const job_forecast& own() const { return levels[static_cast<std::size_t>(level_of(job))]; }
  bool is_sharded() const { return level_of(job) != sharding_level::replicated; }
};

std::uint32_t most_slots(const job_forecast& f) {
  std::uint32_t most = 0;
  for (const auto& m : f.of) most = std::max(most, m.slots);
  return most;
}

void about_replicas(const view& v, std::vector<std::string>& said) {
  const auto members = v.workers.size();
  const auto wanted = v.job.replicas;
  if (!v.is_sharded()) return;
  if (wanted >= members) {
    said.push_back(count(members, "worker") + " and replicas = " + std::to_string(wanted) +
                   ": everybody holds everything, as if replicated; sharding = \"" + v.job.sharding +
                   "\" saves memory from " + count(wanted + 1, "worker") + " on" +
                   (members > 1 && wanted > 1 ? ", or with replicas = " + std::to_string(members - 1) : ""));
    return;
  }
  if (wanted == 1)
    said.emplace_back(
        "replicas = 1: the loss of any worker goes back to the newest checkpoint; with 2 nothing is lost");
  const failure_domains domains(v.workers);
  const auto hosts = domains.count(domain::host), racks = domains.count(domain::rack);
  if (hosts < wanted)
    said.push_back("replicas = " + std::to_string(wanted) + " on " + count(hosts, "host") +
                   ": copies on one machine go together; more than " + std::to_string(hosts) +
                   " survive no further machine, and cost memory");
  const bool has_racks =
      std::any_of(v.workers.begin(), v.workers.end(), [](const auto& w) { return !w.at.rack.empty(); });
  if (has_racks && hosts >= wanted && racks < wanted)
    said.push_back("replicas = " + std::to_string(wanted) + " in " + count(racks, "rack") +
                   ": some copies share a rack and go with it");
}

void about_slots(const view& v, std::vector<std::string>& said) {
  const auto members = v.workers.size();
  const auto slots = v.job.batch.slots;
  std::vector<std::string> idle;
  for (std::size_t m = 0; m < members; ++m)
    if (v.own().of[m].slots == 0) idle.push_back(v.names[m]);
  if (slots < slots_a_worker * members) {
    double speed = 0;
    for (const auto& w : v.workers) speed += w.slots_per_second;
    double slowest = 0;
    for (std::size_t m = 0; m < members; ++m)
      if (v.own().of[m].slots > 0)
        slowest = std::max(slowest, v.own().of[m].slots / v.workers[m].slots_per_second);
    const auto lost = slowest * speed / slots - 1;
    const auto better = std::bit_ceil(static_cast<std::uint32_t>(slots_a_worker * members));
    said.push_back("batch.slots = " + std::to_string(slots) + " is less than " +
                   std::to_string(slots_a_worker) + " for each of " + count(members, "worker") +
                   ": whole slots share out unevenly" +
                   (lost > worth_saying ? ", a step computes " + percent(lost) + " longer than evenly" : "") +
                   "; " + std::to_string(better) + " would do");
  }
  if (!idle.empty()) {
    const auto first = idle.front() + (idle.size() > 1 ? " and " + count(idle.size() - 1, "other") : "");
    said.push_back(first + (idle.size() > 1 ? " get" : " gets") +
                   " no slots: a step is as fast without. They hold copies and stand ready");
  }
  const bool streams = level_of(v.job) >= sharding_level::gradients;
  const auto most = most_slots(v.own());
  if (streams && v.job.batch.pass_slots > most)
    said.push_back("batch.pass_slots = " + std::to_string(v.job.batch.pass_slots) +
                   ": no worker has more than " + count(most, "slot") + ", so no pass takes more");
}

void about_memory(const view& v, std::vector<std::string>& said) {
  const auto level = static_cast<std::size_t>(level_of(v.job));
  const auto own = v.levels[level].memory_most();
  if (level > 0 && v.own().replicas < v.workers.size()) {
    const auto lower = v.levels[level - 1].memory_most();
    const auto side_by_side = std::min(v.job.batch.pass_slots, most_slots(v.own()));
    if (static_cast<double>(own) > (1 - worth_saying) * static_cast<double>(lower))
      said.push_back("sharding = \"" + v.job.sharding + "\" takes " + in_mib(own) + " a worker, \"" +
                     name_of(v.levels[level - 1].level) + "\" " + in_mib(lower) + ": it gains nothing here" +
                     (v.own().level >= sharding_level::gradients && side_by_side > 1
                          ? "; activations of " + count(side_by_side, "slot") +
                                " side by side are in it: a smaller batch.pass_slots or "
                                "model.activation_checkpointing take less"
                          : ""));
  }
  for (std::size_t m = 0; m < v.workers.size(); ++m) {
    const auto has = v.workers[m].memory_bytes;
    const auto needs = v.own().of[m].memory.total();
    if (has == 0 || needs <= has) continue;
    const auto fits = std::find_if(v.levels.begin(), v.levels.end(),
                                   [&](const auto& l) { return l.of[m].memory.total() <= has; });
    said.push_back(v.names[m] + " needs " + in_mib(needs) + " and has " + in_mib(has) +
                   (fits == v.levels.end()
                        ? ": it fits at no level"
                        : std::string(": it fits with sharding = \"") + name_of(fits->level) + "\" (" +
                              in_mib(fits->of[m].memory.total()) + ")"));
  }
}

}  // namespace

std::vector<std::string> advice(const std::vector<job_forecast>& levels, const job_config& job,
                                const std::vector<candidate>& workers,
                                const std::vector<std::string>& names) {
  std::vector<std::string> said;
  const view v{levels, job, workers, names};
  about_replicas(v, said);
  about_slots(v, said);
  about_memory(v, said);
  return said;
}

}  // namespace perdura::coordinator
