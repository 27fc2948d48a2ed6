// Where checkpoints go besides the coordinator's own store: sections [tier.NAME] of the cluster's file.
// Secrets are not among them: they come from a file of their own or the environment.
#pragma once

#include <cstdint>
#include <string>

namespace perdura {

struct tier_config {
  std::string name;
  std::string kind = "s3";
  std::string folder;    // of kind "folder"
  std::string endpoint;  // the rest: of kind "s3"
  std::string bucket;
  std::string prefix;
  std::string region = "us-east-1";
  std::string addressing = "path";
  std::string credentials_file;  // empty: the environment
  std::string profile = "default";
  std::string ca_file;
  bool conditional_puts = true;
  bool plain_http = false;
  std::uint32_t keep = 10;
  std::uint32_t part_mb = 16;
  std::uint32_t upload_mb_per_s = 0;
};

}  // namespace perdura
