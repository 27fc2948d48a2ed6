// Who computes which slots and who holds which tiles: pure functions of members and what they can do. All are
// near-linear in members, slots and tiles, and give the same for the same arguments in any order of
// candidates.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "actors/base/control.hpp"
#include "actors/base/plan.hpp"

namespace perdura::coordinator {

// A worker that may become or stay a member.
struct candidate {
  incarnation who;
  double slots_per_second = 1;     // only ratios count; 0: gets no slots beside those kept
  node_labels at{};                // replicas avoid what machines share
  std::uint64_t memory_bytes = 0;  // 0: unknown, counted as the average of the others
  std::vector<block> kept{};       // blocks that stay with it whatever happens
};

// Divides `slots` (a power of two) among the candidates, who come back sorted by incarnation:
// 1. the slowest member's time (its slots / its speed) is the least that whole slots allow; so a candidate
//    that is too slow gets none. Blocks kept beyond that do not lift the bound for the others;
// 2. under that bound as few aligned blocks as possible, for each one is a gradient that leaves its member;
//    none larger than `largest_block` (0: any);
// 3. where that costs neither, blocks stay with whom they were with in `before` (members of the plan in
//    effect).
// The kept blocks must be aligned and disjoint.
std::vector<plan_member> plan_blocks(std::uint32_t slots, std::vector<candidate> candidates,
                                     std::uint32_t largest_block = 0,
                                     const std::vector<plan_member>& before = {});

// For each tile the indices (into members, sorted by incarnation) of its holders, the owner first.
using tile_map = std::vector<std::vector<member_index>>;

// `replicas` holders of each tile (0: every member), as bytes per byte of memory as even as possible:
// - never two on one host, as long as there are enough hosts; then no shared rack, then no shared zone,
// unless
//   that would load a member with more than twice its share;
// - whoever holds a tile in `before` (indices into the same members; may be empty) goes on holding it, but
// for
//   what `replicas` and hosts demand, and unless a member has more or less than its share by over a tenth;
// - owners stay too, but for those that own more than another holder by more than a tile.
// `weights` are the sizes of the tiles, in any unit.
tile_map plan_tiles(const std::vector<std::uint32_t>& weights, const std::vector<candidate>& members,
                    std::uint32_t replicas, const tile_map& before = {});

// The sizes of the tiles, as plan_tiles takes them.
std::vector<std::uint32_t> weights_of(const std::vector<tile>& tiles);

// Who of `members` (sorted by incarnation) holds each tile under `current`, as plan_tiles takes it.
tile_map holders_among(const plan& current, const std::vector<plan_member>& members);

using label_map = std::map<incarnation, node_labels>;

// The difference of two tile maps: a copy for each holder that `next` has and `current` has not, from the
// nearest of the current holders (host, rack, zone, any), of equally near ones from whoever sends least so
// far. In the order of tiles. Who is not in `labels` is near to nobody.
std::vector<tile_move> tile_moves(const plan& current, const plan& next, const label_map& labels,
                                  const std::vector<std::uint32_t>& weights = {});

}  // namespace perdura::coordinator
