// Names of what lies in a store:
//   packs/<incarnation>-<sequence>.pack             chunks, appended by one worker
//   manifests/<job>/<timeline>-<step>.json          one checkpoint each, immutable
//   tombstones/<job>/<timeline>-<step>.json         a checkpoint being deleted
//   terms/<term>                                    the coordinators' terms
// All names are checked: they arrive in messages and manifests, and become paths.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "actors/base/ids.hpp"

namespace perdura::storage {

// Newer timelines outrank all steps of older ones: those steps were abandoned.
struct checkpoint_key {
  std::string job;
  timeline_number timeline;
  step_number step;
  auto operator<=>(const checkpoint_key&) const = default;
};

std::string to_string(const checkpoint_key& key);  // "job step 600 (timeline 0)"

struct pack_name {
  incarnation who;
  std::uint32_t sequence{};
  auto operator<=>(const pack_name&) const = default;
};

std::string to_string(const pack_name& name);
std::optional<pack_name> parse_pack_name(std::string_view text);

// Letters, digits, '.', '_' and '-', not starting with '.', at most 64.
bool is_job_name(std::string_view job);

std::filesystem::path packs_folder(const std::filesystem::path& store);
std::string manifest_object(const checkpoint_key& key);
std::string tombstone_object(const checkpoint_key& key);
// Of a manifest's or a tombstone's object name.
std::optional<checkpoint_key> parse_checkpoint_object(std::string_view name);

}  // namespace perdura::storage
