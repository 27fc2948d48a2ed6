// Who computes which slots and who holds which tiles: pure functions of members and what they can do.
#pragma once

#include <vector>

#include "actors/base/plan.hpp"

namespace perdura::coordinator {

struct capacity {
  incarnation who;
  double slots_per_second = 1;  // relative: only ratios count
  std::vector<block> kept;      // blocks that stay with this member whatever happens
};

// Divides `slots` (a power of two) among the members, in proportion to what they can do, into as few aligned
// blocks as that allows: the largest free piece goes to the member that lacks most, halved as long as it is
// more than it lacks. The kept blocks must be aligned and disjoint. Members come back sorted by incarnation.
std::vector<plan_member> plan_blocks(std::uint32_t slots, std::vector<capacity> members);

// Holders of each tile, the owner first. `before[t]`: those that hold tile t now (indices into the same
// members); they stay as far as `replicas` (0: all members) allows, since moving costs. Owners are spread
// evenly.
std::vector<std::vector<member_index>> plan_tiles(std::uint32_t tiles, std::uint32_t members,
                                                  std::uint32_t replicas,
                                                  const std::vector<std::vector<member_index>>& before);

}  // namespace perdura::coordinator
