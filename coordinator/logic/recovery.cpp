#include "coordinator/logic/recovery.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <set>

namespace perdura::coordinator {

namespace {

using index = std::uint32_t;  // of an inventory, while members are not settled yet

struct tile_holders {
  std::vector<index> complete;  // reach the settled step
  std::vector<index> reduced;   // of those, hold the gradient of the next
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
  for (index n = 0; n < in.inventories.size(); ++n) {
    const auto& i = in.inventories[n];
    if (i.timeline != in.timeline) continue;
    for (const auto& t : i.tiles) {
      if (!t.complete || t.tile.value >= in.tiles) continue;
      const bool is_there = t.version == step;
      const bool completes = may_complete && t.version + 1 == step && t.has_gradient;
      if (!is_there && !completes) continue;
      tiles[t.tile.value].complete.push_back(n);
      if (is_there && t.has_gradient) tiles[t.tile.value].reduced.push_back(n);
    }
  }
  return tiles;
}

bool all_held(const std::vector<tile_holders>& tiles) {
  return std::all_of(tiles.begin(), tiles.end(), [](const auto& t) { return !t.complete.empty(); });
}

// Whose inventories are those of the next members, sorted by incarnation: survivors of the effective plan,
// and whoever is the last to hold a tile. What a learner holds beside them does not count: it is no member,
// and will not be asked.
std::vector<index> settle_members(const recovery_input& in, std::vector<tile_holders>& tiles) {
  std::vector<char> chosen(in.inventories.size(), 0);
  for (index n = 0; n < in.inventories.size(); ++n)
    chosen[n] = in.inventories[n].timeline == in.timeline && in.effective.has_member(in.inventories[n].who);
  const auto is_chosen = [&](index n) { return chosen[n] != 0; };
  for (const auto& t : tiles)
    if (std::none_of(t.complete.begin(), t.complete.end(), is_chosen)) chosen[t.complete.front()] = 1;
  for (auto& t : tiles)
    for (auto* list : {&t.complete, &t.reduced}) std::erase_if(*list, std::not_fn(is_chosen));
  std::vector<index> members;
  for (index n = 0; n < chosen.size(); ++n)
    if (is_chosen(n)) members.push_back(n);
  std::sort(members.begin(), members.end(),
            [&](index a, index b) { return in.inventories[a].who < in.inventories[b].who; });
  return members;
}

// What is known of these members.
std::vector<candidate> candidates_of(const recovery_input& in, const std::vector<index>& members) {
  std::vector<const candidate*> known;
  known.reserve(in.known.size());
  for (const auto& c : in.known) known.push_back(&c);
  std::sort(known.begin(), known.end(), [](const auto* a, const auto* b) { return a->who < b->who; });
  std::vector<candidate> candidates;
  candidates.reserve(members.size());
  for (const auto n : members) {
    const auto& who = in.inventories[n].who;
    const auto at = std::lower_bound(known.begin(), known.end(), who,
                                     [](const auto* c, const incarnation& w) { return c->who < w; });
    candidates.push_back(at != known.end() && (*at)->who == who ? **at : candidate{who});
    candidates.back().kept.clear();
  }
  return candidates;
}

// Blocks of the next step that survive: with whoever computes or has computed them, or complete at their
// receivers.
class kept_blocks {
 public:
  explicit kept_blocks(const recovery_input& in, std::size_t members)
      : by_member(members), taken_(in.slots, 0) {}

  // False where a slot of it is taken already.
  bool take(const block& b) {
    if (b.end() > taken_.size()) return false;
    const auto first = taken_.begin() + b.first;
    if (std::find(first, first + b.size, char{1}) != first + b.size) return false;
    std::fill_n(first, b.size, char{1});
    found += b.size;
    return true;
  }

  std::vector<std::vector<block>> by_member;
  std::vector<block> orphans;
  std::uint32_t found = 0;  // slots in them

 private:
  std::vector<char> taken_;
};

kept_blocks keep_blocks(const recovery_input& in, step_number next, const std::vector<index>& members,
                        const std::vector<tile_holders>& tiles) {
  kept_blocks kept(in, members.size());
  const auto counts = [&](const inventory_report& i) {
    return i.partials_step == next && i.timeline == in.timeline;
  };
  for (const auto status : {block_status::computed, block_status::computing})
    for (std::size_t m = 0; m < members.size(); ++m) {
      const auto& i = in.inventories[members[m]];
      if (!counts(i)) continue;
      for (const auto& b : i.blocks)
        if (b.status == status && kept.take(b.slots)) kept.by_member[m].push_back(b.slots);
    }
  const auto is_open = [&](tile_id t) { return t.value < in.tiles && tiles[t.value].reduced.empty(); };
  const auto open = static_cast<std::size_t>(
      std::count_if(tiles.begin(), tiles.end(), [](const auto& t) { return t.reduced.empty(); }));
  std::map<block, std::vector<tile_id>> received;  // for which of the tiles that are not reduced yet
  for (const auto n : members) {
    const auto& i = in.inventories[n];
    if (!counts(i)) continue;
    for (const auto& b : i.blocks)
      if (b.status == block_status::received)
        std::copy_if(b.tiles.begin(), b.tiles.end(), std::back_inserter(received[b.slots]), is_open);
  }
  for (auto& [b, have] : received) {
    std::sort(have.begin(), have.end());
    const auto end = std::unique(have.begin(), have.end());
    if (static_cast<std::size_t>(end - have.begin()) == open && kept.take(b)) kept.orphans.push_back(b);
  }
  return kept;
}

// Blocks for the members: what is kept, then the rest split anew, where it costs nothing as it was.
std::vector<plan_member> divide(const recovery_input& in, std::vector<candidate> members, kept_blocks& kept) {
  // Somebody has to answer for an orphan from the next step on: whoever would be done with it first.
  using load = std::pair<double, std::size_t>;
  std::priority_queue<load, std::vector<load>, std::greater<>> loads;
  const auto time_of = [&](std::size_t m, std::uint32_t slots) {
    return slots / std::max(members[m].slots_per_second, 1e-9);
  };
  const auto slots_in = [](const std::vector<block>& blocks) {
    std::uint32_t slots = 0;
    for (const auto& b : blocks) slots += b.size;
    return slots;
  };
  if (!kept.orphans.empty())
    for (std::size_t m = 0; m < members.size(); ++m)
      loads.emplace(time_of(m, slots_in(kept.by_member[m])), m);
  for (const auto& b : kept.orphans) {
    const auto [time, m] = loads.top();
    loads.pop();
    kept.by_member[m].push_back(b);
    loads.emplace(time + time_of(m, b.size), m);
  }
  for (std::size_t m = 0; m < members.size(); ++m) members[m].kept = std::move(kept.by_member[m]);
  return plan_blocks(in.slots, std::move(members), in.largest_block, in.effective.members);
}

std::vector<std::uint32_t> weights_in(const recovery_input& in) {
  return in.weights.size() == in.tiles ? in.weights : std::vector<std::uint32_t>(in.tiles, 1);
}

tile_map assign_tiles(const recovery_input& in, const std::vector<index>& members,
                      const std::vector<tile_holders>& tiles, std::vector<tile_id>& reduced) {
  std::vector<member_index> member_of(in.inventories.size());
  for (std::size_t m = 0; m < members.size(); ++m) member_of[members[m]] = static_cast<member_index>(m);
  const auto to_members = [&](const std::vector<index>& list) {
    std::vector<member_index> holders;
    holders.reserve(list.size());
    for (const auto n : list) holders.push_back(member_of[n]);
    std::sort(holders.begin(), holders.end());
    return holders;
  };
  tile_map holders(tiles.size());
  std::vector<std::uint64_t> owned(members.size());
  const auto weights = weights_in(in);
  for (std::uint32_t t = 0; t < tiles.size(); ++t) {
    const auto all = to_members(tiles[t].complete);
    auto able = to_members(tiles[t].reduced);
    std::vector<member_index> others;
    std::set_difference(all.begin(), all.end(), able.begin(), able.end(), std::back_inserter(others));
    if (able.empty()) std::swap(able, others);
    if (!tiles[t].reduced.empty()) reduced.push_back(tile_id(t));
    const auto owner =
        std::min_element(able.begin(), able.end(), [&](auto a, auto b) { return owned[a] < owned[b]; });
    owned[*owner] += weights[t];
    std::iter_swap(able.begin(), owner);
    holders[t] = std::move(able);
    holders[t].insert(holders[t].end(), others.begin(), others.end());
  }
  return holders;
}

// Slots that a survivor has not begun are not lost. Where gradients are handed over as they come a survivor
// may have begun what it does not report.
std::uint32_t not_begun(const recovery_input& in, const std::vector<index>& survivors, kept_blocks kept) {
  if (in.hands_over) return 0;
  const auto before = kept.found;
  for (const auto n : survivors)
    if (const auto* m = in.effective.find(in.inventories[n].who))
      for (const auto& b : m->blocks)
        for (auto slot = b.first; slot < b.end(); ++slot) kept.take({slot, 1});
  return kept.found - before;
}

recovery_decision go_on(const recovery_input& in, step_number settled, std::vector<tile_holders> tiles,
                        bool redoes, broken_rules broken) {
  recovery_decision d;
  auto& o = d.order;
  const auto members = settle_members(in, tiles);
  auto kept = keep_blocks(in, settled + 1, members, tiles);
  if (broken.has(rule::decide_by_inventory)) {
    // (the broken rule: what the plan says its members compute is taken for computed)
    for (const auto& m : in.effective.members)
      for (const auto& b : m.blocks)
        if (kept.take(b)) kept.orphans.push_back(b);
  }
  o.at = in.at;
  o.timeline = in.timeline;
  o.next.id = {in.at, 0};
  o.next.action = in.action;
  o.next.members = divide(in, candidates_of(in, members), kept);
  o.next.holders = assign_tiles(in, members, tiles, o.reduced);
  o.settled = settled;
  o.orphans = kept.orphans;
  const auto idle = redoes ? 0 : not_begun(in, members, kept);
  d.recomputed_slots = o.reduced.size() == in.tiles ? 0 : in.slots - kept.found - idle;
  return d;
}

recovery_decision restore(const recovery_input& in) {
  recovery_decision d;
  auto& o = d.order;
  o.at = in.at;
  o.timeline = in.timeline + 1;
  o.next.id = {in.at, 0};
  o.next.action = in.action;
  std::vector<index> everybody(in.inventories.size());
  std::iota(everybody.begin(), everybody.end(), index{0});
  std::sort(everybody.begin(), everybody.end(),
            [&](index a, index b) { return in.inventories[a].who < in.inventories[b].who; });
  const auto candidates = candidates_of(in, everybody);
  o.next.members = plan_blocks(in.slots, candidates, in.largest_block);
  o.next.holders = plan_tiles(weights_in(in), candidates, in.replicas);
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
      auto d = go_on(in, top, tiles, false, broken);
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
        auto d = go_on(in, top - 1, tiles, true, broken);
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
