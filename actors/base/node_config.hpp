// What a machine's agent is told about its machine: sections of the cluster's file, each also a flag.
#pragma once

#include <chrono>
#include <string>

#include "actors/base/control.hpp"

namespace perdura {

// How a machine's owner says that it is taken back, and how long that leaves.
struct preemption_config {
  std::chrono::milliseconds grace{
      30000};                     // from SIGTERM, and from a notice without a time; 0: SIGTERM ends at once
  std::string notice_file;        // its appearance is a notice; empty: none is looked for
  std::string metadata = "none";  // whose metadata service is asked
  std::string metadata_url;       // instead of the service's usual address
  std::chrono::milliseconds poll{1000};
  std::chrono::milliseconds request_timeout{2000};
};

struct node_config {
  node_labels labels;
  preemption_config preemption;
};

}  // namespace perdura
