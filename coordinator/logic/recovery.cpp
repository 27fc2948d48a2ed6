#include "coordinator/logic/recovery.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "actors/base/check.hpp"
#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

namespace {

struct tile_holders {
  std::vector<incarnation> complete;  // reach the settled step
  std::vector<incarnation> reduced;   // of those, hold the gradient of the next
};

const verdict* newest_verdict(const recovery_input& in) {
  const verdict* newest = in.record && in.record->timeline == in.timeline ? &*in.record : nullptr;
  for (const auto& i : in.inventories)
    if (i.newest && i.newest->timeline == in.timeline && (!newest || i.newest->step > newest->step))
      newest = &*i.newest;
  return newest;
}

// Who can bring each tile to `step`: at it already or, where completing is allowed, one behind with the
// gradient.
std::vector<tile_holders> holders_at(const recovery_input& in, step_number step, bool may_complete) {
  std::vector<tile_holders> tiles(in.tiles);
  for (const auto& i : in.inventories) {
    if (i.timeline != in.timeline) continue;
    for (const auto& t : i.tiles) {
      if (!t.complete || t.tile.value >= in.tiles) continue;
      const bool is_there = t.version == step;
      const bool completes = may_complete && t.version + 1 == step && t.has_gradient;
      if (!is_there && !completes) continue;
      tiles[t.tile.value].complete.push_back(i.who);
      if (is_there && t.has_gradient) tiles[t.tile.value].reduced.push_back(i.who);
    }
  }
  return tiles;
}

bool all_held(const std::vector<tile_holders>& tiles) {
  return std::all_of(tiles.begin(), tiles.end(), [](const auto& t) { return !t.complete.empty(); });
}

bool contains(const std::vector<incarnation>& list, const incarnation& who) {
  return std::find(list.begin(), list.end(), who) != list.end();
}

// Survivors of the effective plan, and whoever is the last to hold a tile.
std::set<incarnation> members_of(const recovery_input& in, const std::vector<tile_holders>& tiles) {
  std::set<incarnation> members;
  for (const auto& i : in.inventories)
    if (i.timeline == in.timeline && in.effective.has_member(i.who)) members.insert(i.who);
  for (const auto& t : tiles) {
    const bool covered =
        std::any_of(t.complete.begin(), t.complete.end(), [&](auto& w) { return members.contains(w); });
    if (!covered) members.insert(t.complete.front());
  }
  return members;
}

// Blocks of the next step that survive: with whoever computes or has computed them, or complete at their
// receivers.
struct kept_blocks {
  std::map<incarnation, std::vector<block>> by_member;
  std::vector<block> orphans;
};

bool is_free(const kept_blocks& kept, const block& b) {
  for (const auto& [who, blocks] : kept.by_member)
    for (const auto& k : blocks)
      if (k.overlaps(b)) return false;
  return std::none_of(kept.orphans.begin(), kept.orphans.end(),
                      [&](const block& o) { return o.overlaps(b); });
}

kept_blocks keep_blocks(const recovery_input& in, step_number next, const std::set<incarnation>& members,
                        const std::vector<tile_holders>& tiles) {
  kept_blocks kept;
  for (const auto status : {block_status::computed, block_status::computing})
    for (const auto& i : in.inventories) {
      if (i.partials_step != next || !members.contains(i.who) || i.timeline != in.timeline) continue;
      for (const auto& b : i.blocks)
        if (b.status == status && is_free(kept, b.slots)) kept.by_member[i.who].push_back(b.slots);
    }
  std::map<block, std::set<tile_id>> received;
  for (const auto& i : in.inventories) {
    if (i.partials_step != next || !members.contains(i.who) || i.timeline != in.timeline) continue;
    for (const auto& b : i.blocks)
      if (b.status == block_status::received) received[b.slots].insert(b.tiles.begin(), b.tiles.end());
  }
  for (const auto& [b, have] : received) {
    bool all = true;
    for (std::uint32_t t = 0; t < in.tiles && all; ++t)
      all = !tiles[t].reduced.empty() || have.contains(tile_id(t));
    if (all && is_free(kept, b)) kept.orphans.push_back(b);
  }
  return kept;
}

// Blocks for the members: what is kept, then what they had under the effective plan, then the rest split
// anew.
std::vector<plan_member> divide(const recovery_input& in, const std::set<incarnation>& members,
                                kept_blocks kept) {
  for (const auto& m : in.effective.members) {
    if (!members.contains(m.who)) continue;
    for (const auto& b : m.blocks)
      if (is_free(kept, b)) kept.by_member[m.who].push_back(b);
  }
  // Somebody has to answer for an orphan from the next step on.
  auto shortest = [&] {
    const incarnation* best = nullptr;
    std::uint32_t least = 0;
    for (const auto& who : members) {
      std::uint32_t load = 0;
      for (const auto& b : kept.by_member[who]) load += b.size;
      if (!best || load < least) {
        best = &who;
        least = load;
      }
    }
    return *best;
  };
  for (const auto& b : kept.orphans) kept.by_member[shortest()].push_back(b);
  std::vector<capacity> capacities;
  capacities.reserve(members.size());
  for (const auto& who : members) capacities.push_back({who, 1, kept.by_member[who]});
  return plan_blocks(in.slots, std::move(capacities));
}

std::vector<std::vector<member_index>> assign_tiles(const std::vector<plan_member>& members,
                                                    const std::vector<tile_holders>& tiles,
                                                    std::vector<tile_id>& reduced) {
  std::vector<std::vector<member_index>> holders(tiles.size());
  std::vector<std::size_t> owned(members.size());
  for (std::uint32_t t = 0; t < tiles.size(); ++t) {
    std::vector<member_index> with_gradient, without;
    for (std::size_t m = 0; m < members.size(); ++m) {
      if (!contains(tiles[t].complete, members[m].who)) continue;
      (contains(tiles[t].reduced, members[m].who) ? with_gradient : without)
          .push_back(static_cast<member_index>(m));
    }
    if (!with_gradient.empty()) reduced.push_back(tile_id(t));
    auto& able = with_gradient.empty() ? without : with_gradient;
    const auto owner =
        std::min_element(able.begin(), able.end(), [&](auto a, auto b) { return owned[a] < owned[b]; });
    ++owned[*owner];
    std::iter_swap(able.begin(), owner);
    holders[t] = with_gradient;
    holders[t].insert(holders[t].end(), without.begin(), without.end());
  }
  return holders;
}

recovery_decision go_on(const recovery_input& in, step_number settled, std::vector<tile_holders> tiles,
                        broken_rules broken) {
  recovery_decision d;
  auto& o = d.order;
  const auto members = members_of(in, tiles);
  // What a learner holds beside them does not count: it is no member, and will not be asked.
  for (auto& t : tiles)
    for (auto* list : {&t.complete, &t.reduced})
      std::erase_if(*list, [&](const auto& w) { return !members.contains(w); });
  auto kept = keep_blocks(in, settled + 1, members, tiles);
  if (broken.has(rule::decide_by_inventory)) {
    // (the broken rule: what the plan says its members compute is taken for computed)
    for (const auto& m : in.effective.members)
      for (const auto& b : m.blocks)
        if (is_free(kept, b)) kept.orphans.push_back(b);
  }
  std::uint32_t found = 0;
  for (const auto& b : kept.orphans) found += b.size;
  for (const auto& [who, blocks] : kept.by_member)
    for (const auto& b : blocks) found += b.size;
  o.at = in.at;
  o.timeline = in.timeline;
  o.next.id = {in.at, 0};
  o.next.action = in.action;
  o.next.members = divide(in, members, kept);
  o.next.holders = assign_tiles(o.next.members, tiles, o.reduced);
  o.settled = settled;
  o.orphans = kept.orphans;
  d.recomputed_slots = o.reduced.size() == in.tiles ? 0 : in.slots - found;
  return d;
}

recovery_decision restore(const recovery_input& in) {
  recovery_decision d;
  auto& o = d.order;
  o.at = in.at;
  o.timeline = in.timeline + 1;
  o.next.id = {in.at, 0};
  o.next.action = in.action;
  std::vector<capacity> capacities;
  capacities.reserve(in.inventories.size());
  for (const auto& i : in.inventories) capacities.push_back({i.who, 1, {}});
  o.next.members = plan_blocks(in.slots, std::move(capacities));
  o.next.holders = plan_tiles(in.tiles, static_cast<member_index>(o.next.members.size()), in.replicas, {});
  o.settled = in.restore.step;
  o.standing = in.restore_verdict;
  o.restore = in.restore;
  d.how = settled_how::restored;
  d.recomputed_slots = in.slots;
  return d;
}

}  // namespace

std::optional<recovery_decision> decide(const recovery_input& in, broken_rules broken) {
  if (in.inventories.empty()) return std::nullopt;
  const auto* newest = newest_verdict(in);
  const auto top = newest && newest->step > in.base ? newest->step : in.base;
  const std::optional<verdict> top_verdict =
      newest && newest->step == top ? std::optional(*newest) : in.base_verdict;
  const bool has_member = std::any_of(in.inventories.begin(), in.inventories.end(), [&](const auto& i) {
    return i.timeline == in.timeline && in.effective.has_member(i.who);
  });

  if (has_member) {
    const bool stands = !broken.has(rule::stand_by_verdict) || top == in.base;
    if (const auto tiles = holders_at(in, top, true); stands && all_held(tiles)) {
      auto d = go_on(in, top, tiles, broken);
      d.order.standing = top_verdict;
      if (broken.has(rule::keep_verdict) && d.order.standing && top > in.base) {
        d.order.standing->outcome.learning_rate *= 0.5F;
      }
      d.how = settled_how::completed;
      d.reason = "step " + to_string(top) + " stands, survivors complete it; " +
                 std::to_string(d.recomputed_slots) + " slots of step " + to_string(top + 1) + " are lost";
      return d;
    }
    if (top > in.base && top_verdict) {
      if (const auto tiles = holders_at(in, top - 1, false); all_held(tiles)) {
        auto d = go_on(in, top - 1, tiles, broken);
        if (!broken.has(rule::stand_by_verdict)) d.order.expected = top_verdict;
        d.how = settled_how::redone;
        d.reason = "step " + to_string(top) + " was decided but no survivor can complete it: it is redone";
        return d;
      }
    }
  }
  auto d = restore(in);
  const char* why = in.effective.members.empty() ? "nobody holds any state yet"
                    : has_member                 ? "a tile has no complete holder left"
                                                 : "no member of the newest plan survives";
  d.reason = std::string(why) + ": from step " + to_string(in.restore.step) +
             (in.restore.step.value == 0 ? ", the seed" : ", a checkpoint");
  return d;
}

}  // namespace perdura::coordinator
