#include "coordinator/logic/recovery.hpp"

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <queue>
#include <span>

namespace perdura::coordinator {

namespace {

using index = std::uint32_t;  // of an inventory, while members are not settled yet

// A list of inventories for each tile, all in one piece: there may be a hundred thousand of them.
class lists_by_tile {
 public:
  void add(std::uint32_t tile, index n) { entries_.emplace_back(tile, n); }
  void group(std::uint32_t tiles) {
    start_.assign(tiles + std::size_t{1}, 0);
    for (const auto& e : entries_) ++start_[e.first + std::size_t{1}];
    std::partial_sum(start_.begin(), start_.end(), start_.begin());
    items_.resize(entries_.size());
    auto next = start_;
    for (const auto& [tile, n] : entries_) items_[next[tile]++] = n;
  }
  std::span<const index> of(std::uint32_t tile) const {
    return std::span(items_).subspan(start_[tile], start_[tile + std::size_t{1}] - start_[tile]);
  }
  template <class Keep>
  void keep_only(const Keep& keep) {
    std::erase_if(entries_, [&](const auto& e) { return !keep(e.second); });
    group(static_cast<std::uint32_t>(start_.size() - 1));
  }

 private:
  std::vector<std::pair<std::uint32_t, index>> entries_;
  std::vector<std::size_t> start_;
  std::vector<index> items_;
};

struct tile_holders {
  lists_by_tile complete;  // reach the settled step
  lists_by_tile reduced;   // of those, hold the gradient of the next
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
tile_holders holders_at(const recovery_input& in, step_number step, bool may_complete) {
  tile_holders holders;
  for (index n = 0; n < in.inventories.size(); ++n) {
    const auto& i = in.inventories[n];
    if (i.timeline != in.timeline) continue;
    for (const auto& t : i.tiles) {
      if (!t.complete || t.tile.value >= in.tiles) continue;
      const bool is_there = t.version == step;
      const bool completes = may_complete && t.version + 1 == step && t.has_gradient;
      if (!is_there && !completes) continue;
      holders.complete.add(t.tile.value, n);
      if (is_there && t.has_gradient) holders.reduced.add(t.tile.value, n);
    }
  }
  holders.complete.group(in.tiles);
  holders.reduced.group(in.tiles);
  return holders;
}

bool all_held(const recovery_input& in, const tile_holders& holders) {
  for (std::uint32_t t = 0; t < in.tiles; ++t)
    if (holders.complete.of(t).empty()) return false;
  return true;
}

// Whose inventories are those of the next members, sorted by incarnation: survivors of the effective plan,
// and whoever is the last to hold a tile. What a learner holds beside them does not count: it is no member,
// and will not be asked.
std::vector<index> settle_members(const recovery_input& in, tile_holders& holders) {
  std::vector<char> chosen(in.inventories.size(), 0);
  for (index n = 0; n < in.inventories.size(); ++n)
    chosen[n] = in.inventories[n].timeline == in.timeline && in.effective.has_member(in.inventories[n].who);
  const auto is_chosen = [&](index n) { return chosen[n] != 0; };
  for (std::uint32_t t = 0; t < in.tiles; ++t) {
    const auto complete = holders.complete.of(t);
    if (std::none_of(complete.begin(), complete.end(), is_chosen)) chosen[complete.front()] = 1;
  }
  holders.complete.keep_only(is_chosen);
  holders.reduced.keep_only(is_chosen);
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
                        const tile_holders& holders) {
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
  const auto is_open = [&](tile_id t) { return t.value < in.tiles && holders.reduced.of(t.value).empty(); };
  std::size_t open = 0;
  for (std::uint32_t t = 0; t < in.tiles; ++t) open += is_open(tile_id(t)) ? 1 : 0;
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
                      const tile_holders& holders, std::vector<tile_id>& reduced) {
  std::vector<member_index> member_of(in.inventories.size());
  for (std::size_t m = 0; m < members.size(); ++m) member_of[members[m]] = static_cast<member_index>(m);
  const auto to_members = [&](std::span<const index> list, std::vector<member_index>& out) {
    out.clear();
    for (const auto n : list) out.push_back(member_of[n]);
    std::sort(out.begin(), out.end());
  };
  tile_map map(in.tiles);
  std::vector<std::uint64_t> owned(members.size());
  std::vector<member_index> all, able;
  const auto weights = weights_in(in);
  for (std::uint32_t t = 0; t < in.tiles; ++t) {
    // Those with the gradient first, the owner at their head; if nobody has it, any holder may own the tile.
    to_members(holders.complete.of(t), all);
    to_members(holders.reduced.of(t), able);
    if (!able.empty()) reduced.push_back(tile_id(t));
    auto& ordered = map[t];
    ordered.reserve(all.size());
    ordered = able;
    std::set_difference(all.begin(), all.end(), able.begin(), able.end(), std::back_inserter(ordered));
    const auto end =
        able.empty() ? ordered.end() : ordered.begin() + static_cast<std::ptrdiff_t>(able.size());
    const auto owner =
        std::min_element(ordered.begin(), end, [&](auto a, auto b) { return owned[a] < owned[b]; });
    owned[*owner] += weights[t];
    std::iter_swap(ordered.begin(), owner);
  }
  return map;
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

recovery_decision go_on(const recovery_input& in, step_number settled, tile_holders holders, bool redoes,
                        broken_rules broken) {
  recovery_decision d;
  auto& o = d.order;
  const auto members = settle_members(in, holders);
  auto kept = keep_blocks(in, settled + 1, members, holders);
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
  o.next.holders = assign_tiles(in, members, holders, o.reduced);
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
    if (auto holders = holders_at(in, top, true); stands && all_held(in, holders)) {
      auto d = go_on(in, top, std::move(holders), false, broken);
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
      if (auto holders = holders_at(in, top - 1, false); all_held(in, holders)) {
        auto d = go_on(in, top - 1, std::move(holders), true, broken);
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
             (in.restore_verdict ? ", a checkpoint" : ", the seed");
  return d;
}

}  // namespace perdura::coordinator
