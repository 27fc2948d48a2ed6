#include "coordinator/admin/service.hpp"

#include <array>

namespace perdura::admin {

namespace {

// A newer coordinator may send states that this build does not know.
template <class Enum, std::size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

std::string_view to_string(node_state s) {
  static constexpr std::array<std::string_view, 5> names{"joining", "up", "suspect", "draining", "gone"};
  return name_of(names, s);
}

std::string_view to_string(worker_state s) {
  static constexpr std::array<std::string_view, 7> names{"joining", "idle",   "learning", "member",
                                                         "leaving", "fenced", "dead"};
  return name_of(names, s);
}

std::string_view to_string(job_state s) {
  static constexpr std::array<std::string_view, 8> names{"waiting",    "starting", "running", "paused",
                                                         "recovering", "finished", "failed",  "cancelled"};
  return name_of(names, s);
}

std::string_view to_string(checkpoint_state s) {
  static constexpr std::array<std::string_view, 3> names{"writing", "committed", "condemned"};
  return name_of(names, s);
}

}  // namespace perdura::admin
