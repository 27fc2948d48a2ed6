#include "coordinator/logic/planner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "actors/base/check.hpp"

namespace perdura::coordinator {

namespace {

// Whole slots for each member by largest remainder; equal shares differ by one at most.
std::vector<std::int64_t> targets_of(std::uint32_t slots, const std::vector<capacity>& members) {
  double total = 0;
  for (const auto& m : members) total += m.slots_per_second;
  std::vector<std::int64_t> targets(members.size());
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t given = 0;
  for (std::size_t i = 0; i < members.size(); ++i) {
    const double share = slots * members[i].slots_per_second / total;
    targets[i] = static_cast<std::int64_t>(share);
    given += targets[i];
    remainders.emplace_back(-(share - std::floor(share)), i);
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::size_t i = 0; given < slots; ++i, ++given) ++targets[remainders[i % remainders.size()].second];
  return targets;
}

// The aligned pieces of [0, slots) that no kept block covers.
void free_pieces(const block& b, const std::vector<block>& kept, std::vector<block>& out) {
  const auto hit = std::find_if(kept.begin(), kept.end(), [&](const block& k) { return k.overlaps(b); });
  if (hit == kept.end()) return out.push_back(b);
  if (hit->size >= b.size) return;
  free_pieces({b.first, b.size / 2}, kept, out);
  free_pieces({b.first + b.size / 2, b.size / 2}, kept, out);
}

}  // namespace

std::vector<plan_member> plan_blocks(std::uint32_t slots, std::vector<capacity> members) {
  PERDURA_CHECK(std::has_single_bit(slots) && !members.empty(),
                "slots are a power of two, and somebody computes them");
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.who < b.who; });
  auto lacking = targets_of(slots, members);
  std::vector<plan_member> plan;
  std::vector<block> kept;
  for (std::size_t i = 0; i < members.size(); ++i) {
    plan.push_back({members[i].who, members[i].kept});
    for (const auto& b : members[i].kept) {
      PERDURA_CHECK(is_aligned(b) && b.end() <= slots, "a kept block is one of the tree's nodes");
      kept.push_back(b);
      lacking[i] -= b.size;
    }
  }
  std::vector<block> pieces;
  free_pieces({0, slots}, kept, pieces);
  const auto smaller = [](const block& a, const block& b) {
    return a.size != b.size ? a.size < b.size : a.first > b.first;
  };
  std::make_heap(pieces.begin(), pieces.end(), smaller);
  while (!pieces.empty()) {
    std::pop_heap(pieces.begin(), pieces.end(), smaller);
    const auto piece = pieces.back();
    pieces.pop_back();
    const auto neediest =
        static_cast<std::size_t>(std::max_element(lacking.begin(), lacking.end()) - lacking.begin());
    if (piece.size == 1 || lacking[neediest] >= piece.size) {
      plan[neediest].blocks.push_back(piece);
      lacking[neediest] -= piece.size;
      continue;
    }
    for (const auto first : {piece.first, piece.first + piece.size / 2}) {
      pieces.push_back({first, piece.size / 2});
      std::push_heap(pieces.begin(), pieces.end(), smaller);
    }
  }
  for (auto& m : plan) std::sort(m.blocks.begin(), m.blocks.end());
  return plan;
}

std::vector<std::vector<member_index>> plan_tiles(std::uint32_t tiles, std::uint32_t members,
                                                  std::uint32_t replicas,
                                                  const std::vector<std::vector<member_index>>& before) {
  const std::size_t wanted = replicas == 0 ? members : std::min(replicas, members);
  std::vector<std::size_t> held(members), owned(members);
  std::vector<std::vector<member_index>> plan(tiles);
  for (std::uint32_t t = 0; t < tiles; ++t) {
    auto& holders = plan[t];
    if (t < before.size()) holders = before[t];
    if (holders.size() > wanted) holders.resize(wanted);
    while (holders.size() < wanted) {
      member_index best = members;
      for (member_index m = 0; m < members; ++m) {
        const bool has = std::find(holders.begin(), holders.end(), m) != holders.end();
        if (!has && (best == members || held[m] < held[best])) best = m;
      }
      holders.push_back(best);
      ++held[best];
    }
    if (t < before.size())
      for (const auto m : holders)
        if (std::find(before[t].begin(), before[t].end(), m) != before[t].end()) ++held[m];
    const auto owner =
        std::min_element(holders.begin(), holders.end(), [&](auto a, auto b) { return owned[a] < owned[b]; });
    ++owned[*owner];
    std::iter_swap(holders.begin(), owner);
  }
  return plan;
}

}  // namespace perdura::coordinator
