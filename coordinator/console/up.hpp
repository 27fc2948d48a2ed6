// `perdura up`: a coordinator, nodes and their workers on this machine, for as long as it runs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "actors/tls/identity.hpp"
#include "coordinator/console/exit_code.hpp"
#include "coordinator/console/render.hpp"

namespace perdura::console {

struct up_options {
  std::uint32_t workers = 1;
  std::uint32_t nodes = 1;  // the workers are dealt out to them
  std::string job_file;     // empty: runs until Ctrl-C
  std::string config_file;  // empty: as the coordinator finds it
  std::string data_folder;  // empty: as the configuration says
  std::filesystem::path log_folder;
  std::string host = "127.0.0.1";  // where the coordinator will listen
  std::string tls_folder;          // empty: as the configuration says
  tls::identity_ptr tls;           // an admin's, where the cluster has certificates
  int port = -1;                   // -1: as the configuration says; 0: any free one
  int admin_port = -1;
  std::uint32_t ready_s = 60;  // for the workers to have joined
};

// Returns when the job has ended, on Ctrl-C or SIGTERM, or when something failed; by then no process is left.
exit_code run_up(const up_options& options, renderer& view);

}  // namespace perdura::console
