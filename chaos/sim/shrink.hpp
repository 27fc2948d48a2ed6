// Makes a scenario that breaks the protocol shorter, as long as it breaks it in the same way.
#pragma once

#include <string>

#include "actors/base/rules.hpp"
#include "chaos/sim/schedule.hpp"

namespace perdura::sim {

struct shrunk {
  scenario shortest;
  std::string violated;
  std::uint32_t runs{};
};

// What is wrong, without the numbers.
std::string kind_of(const std::string& violated);

// `s` must break the protocol as `violated` says. Gives up improving after `runs_max` runs.
shrunk shrink(const scenario& s, const std::string& violated, broken_rules broken,
              std::uint32_t runs_max = 3000);

}  // namespace perdura::sim
