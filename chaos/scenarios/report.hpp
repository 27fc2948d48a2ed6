// What a run leaves behind: a table for people, run.json for machines, a picture of the loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/admin/service.hpp"

namespace perdura::chaos {

// What was done to the cluster, and what it made of it. Times are counted from the blow itself.
struct blow {
  std::string what;        // "worker b/0 (SIGKILL)"
  std::string kind;        // worker_killed, node_killed, node_joined
  std::uint64_t step{};    // committed when it fell
  std::int64_t time_ms{};  // Unix time
  std::optional<double> detected_ms{};
  std::optional<double> committed_ms{};
  std::uint64_t recomputed_slots{};
};

struct run_report {
  std::string job_text;
  std::uint64_t seed{};
  std::uint32_t slots{};
  double seconds{};
  bool faults{};
  admin::cluster_status cluster{};
  admin::job_info job{};
  std::vector<admin::step_info> steps{};
  std::vector<blow> blows{};
};

// Fills in what the coordinator recorded about each blow.
void match(std::vector<blow>& blows, const std::vector<admin::recovery_info>& recoveries);

std::string table(const run_report& run);
// Throws failure when a file cannot be written.
void write_json(const run_report& run, const std::filesystem::path& file);
// Draws with gnuplot; false when it is missing or refuses.
bool draw_loss(const run_report& run, const std::filesystem::path& picture,
               const std::filesystem::path& scratch);
// The final hash of an earlier run of the same job, from its run.json.
std::optional<std::string> earlier_hash(const std::filesystem::path& file, const std::string& job_text);
// Mean loss over the last steps.
double final_loss(const std::vector<admin::step_info>& steps);

}  // namespace perdura::chaos
