// What to settle on after a failure: a pure function of the inventories and of what is on record. Decided
// from what survivors hold, never from the old plan.
#pragma once

#include <string>
#include <vector>

#include "actors/base/control.hpp"
#include "actors/base/rules.hpp"
#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

struct recovery_input {
  era at;
  timeline_number timeline;
  std::uint32_t slots{};
  std::uint32_t tiles{};
  std::uint32_t replicas{};                   // wanted of each tile when all is restored; 0: everywhere
  std::vector<inventory_report> inventories;  // of all survivors
  std::optional<verdict> record;              // newest verdict the coordinator knows, of this timeline
  step_number base;                           // where this timeline began, or the last recovery settled
  std::optional<verdict> base_verdict;
  plan effective;  // newest plan known to be effective; empty before the first
  plan_action action = plan_action::train;
  // Fallback: the newest committed checkpoint (step 0: the seed), and its verdict.
  restore_source restore;
  std::optional<verdict> restore_verdict;
  // What is known of the survivors, in any order; whoever is missing counts as one among equals.
  std::vector<candidate> known;
  std::vector<std::uint32_t> weights;  // sizes of the tiles; empty: all alike
  std::uint32_t largest_block = 0;     // 0: any
  bool hands_over = false;             // gradients are sharded: finished parts of a block are kept nowhere
};

enum class settled_how : std::uint8_t { completed, redone, restored };

struct recovery_decision {
  recover_order order;
  settled_how how{};
  std::uint32_t recomputed_slots{};  // computed or under way at the time, now lost
  std::string reason;
};

// None when there is no survivor to go on with.
std::optional<recovery_decision> decide(const recovery_input& in, broken_rules broken = {});

}  // namespace perdura::coordinator
