// Who computes and who holds what, and the outcome of a step: the words of the step protocol.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/ids.hpp"

namespace perdura {

// An aligned set of slots: size is a power of two and first a multiple of it, so a block is one node of the
// reduction tree over all slots of a step.
struct block {
  std::uint32_t first{};
  std::uint32_t size{};
  constexpr auto operator<=>(const block&) const = default;
  constexpr std::uint32_t end() const { return first + size; }
  constexpr bool overlaps(const block& b) const { return first < b.end() && b.first < end(); }
};

std::string to_string(const block& b);  // "[8,12)"

struct plan_member {
  incarnation who;
  std::vector<block> blocks;  // sorted, disjoint
  bool operator==(const plan_member&) const = default;
};

// What a plan asks for beside its members; takes effect, as the plan does, at the verdict that names it.
enum class plan_action : std::uint8_t { train, pause, stop };

using member_index = std::uint32_t;

struct plan {
  plan_id id;
  std::vector<plan_member> members;  // sorted by incarnation
  // For each tile the indices (into members) of its holders, the owner first.
  std::vector<std::vector<member_index>> holders;
  plan_action action = plan_action::train;
  // Snapshot the state at the verdict that makes this plan effective.
  bool snapshot = false;
  bool operator==(const plan&) const = default;

  const plan_member* find(const incarnation& who) const;
  bool has_member(const incarnation& who) const { return find(who) != nullptr; }
  const incarnation& owner(tile_id tile) const { return members[holders[tile.value].front()].who; }
  bool holds(const incarnation& who, tile_id tile) const;
};

// A copy of a tile that a new holder needs, from a holder near to it.
struct tile_move {
  tile_id tile;
  incarnation from;
  incarnation to;
  bool operator==(const tile_move&) const = default;
};

// All numbers of a step that depend on every tile; computed once from the votes, then only carried.
struct step_outcome {
  double gradient_norm{};  // canonical sum over tiles, before clipping
  float clip_scale{};      // factor on the gradient
  float learning_rate{};
  bool skipped{};                  // non-finite: data advances, the optimizer does not
  std::uint64_t optimizer_time{};  // steps the optimizer has taken, this one included unless skipped
  double loss{};                   // mean over the batch
  std::uint32_t skips_in_a_row{};
  bool operator==(const step_outcome& o) const;  // compares bits: a NaN loss equals itself
};

// Immutable once anybody observed it.
struct verdict {
  step_number step;
  timeline_number timeline;
  plan_id plan;       // under which the step was computed
  plan_id next_plan;  // under which the next one will be
  step_outcome outcome;
  bool operator==(const verdict&) const = default;
};

// A piece of all state in global coordinates: elements [first, first + size) of the flat parameter vector.
// A tile never spans two stages of the model, so that parameters can be gathered stage by stage.
struct tile {
  std::uint64_t first{};
  std::uint32_t size{};
  std::uint32_t stage{};
  bool operator==(const tile&) const = default;
};

// A parameter of the model, whole: elements from `first` on of the flat parameter vector, row-major.
struct named_tensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  std::uint64_t first{};
  bool operator==(const named_tensor&) const = default;
};

// The largest aligned blocks that cover the slots [first, end) exactly.
std::vector<block> aligned_cover(std::uint32_t first, std::uint32_t end);
bool is_aligned(const block& b);

}  // namespace perdura
