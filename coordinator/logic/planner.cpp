#include "coordinator/logic/planner.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <queue>

#include "actors/base/check.hpp"

namespace perdura::coordinator {

namespace {

using count = std::uint64_t;

std::vector<double> speeds_of(const std::vector<candidate>& members) {
  std::vector<double> speeds;
  speeds.reserve(members.size());
  for (const auto& m : members)
    speeds.push_back(std::isfinite(m.slots_per_second) ? std::max(0.0, m.slots_per_second) : 0.0);
  // Nothing is known of anybody: all are alike.
  if (std::all_of(speeds.begin(), speeds.end(), [](double s) { return s == 0; }))
    speeds.assign(speeds.size(), 1.0);
  return speeds;
}

// The time at which all slots would be done if they could be cut at will: members that keep more than what
// they could do by then are left out of the sum.
double ideal_time(count slots, const std::vector<double>& speeds, const std::vector<count>& kept) {
  std::vector<std::size_t> order;
  double left = static_cast<double>(slots), speed = 0;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    speed += speeds[i];
    if (kept[i] > 0) order.push_back(i);
  }
  const auto own_time = [&](std::size_t i) { return static_cast<double>(kept[i]) / speeds[i]; };
  std::sort(order.begin(), order.end(), [&](auto a, auto b) { return own_time(a) > own_time(b); });
  for (const auto i : order) {
    if (speed <= 0 || own_time(i) <= left / speed) break;
    left -= static_cast<double>(kept[i]);
    speed -= speeds[i];
  }
  return speed > 0 && left > 0 ? left / speed : 0;
}

// Whole slots that a member does by `time`.
count slots_by(double time, double speed, count most) {
  if (speed <= 0) return 0;
  auto n = static_cast<count>(std::min(time * speed, static_cast<double>(most)));
  while (n < most && static_cast<double>(n + 1) / speed <= time) ++n;
  while (n > 0 && static_cast<double>(n) / speed > time) --n;
  return n;
}

// How many slots each may have, at most, for the slowest to be as early as whole slots allow.
std::vector<count> limits_of(count slots, const std::vector<double>& speeds, const std::vector<count>& kept) {
  // A little below the ideal, so that rounding never hands out more than there is.
  const double sure = ideal_time(slots, speeds, kept) * (1 - 1e-9);
  std::vector<count> share(speeds.size());
  count given = 0;
  for (std::size_t i = 0; i < speeds.size(); ++i)
    given += share[i] = std::max(kept[i], slots_by(sure, speeds[i], slots));
  using next = std::pair<double, std::size_t>;  // when the member would be done with one more slot
  std::priority_queue<next, std::vector<next>, std::greater<>> nexts;
  for (std::size_t i = 0; i < speeds.size(); ++i)
    if (speeds[i] > 0) nexts.emplace(static_cast<double>(share[i] + 1) / speeds[i], i);
  for (; given < slots; ++given) {
    const auto i = nexts.top().second;
    nexts.pop();
    ++share[i];
    nexts.emplace(static_cast<double>(share[i] + 1) / speeds[i], i);
  }
  double bound = 0;
  for (std::size_t i = 0; i < speeds.size(); ++i)
    if (share[i] > kept[i]) bound = std::max(bound, static_cast<double>(share[i]) / speeds[i]);
  for (std::size_t i = 0; i < speeds.size(); ++i)
    share[i] = std::max(kept[i], slots_by(bound, speeds[i], slots));
  return share;
}

// Who had which slots before, as the tree over them: a node's owner is whoever had all its slots.
class former_owners {
 public:
  static constexpr std::int32_t nobody = -1, several = -2;

  former_owners(std::uint32_t slots, const std::vector<candidate>& members,
                const std::vector<plan_member>& before) {
    if (before.empty()) return;
    slots_ = slots;
    owner_.assign(2 * std::size_t{slots}, nobody);
    blocks_.resize(members.size());
    for (const auto& m : before) {
      const auto at = std::lower_bound(members.begin(), members.end(), m.who,
                                       [](const candidate& c, const incarnation& w) { return c.who < w; });
      if (at == members.end() || at->who != m.who) continue;
      const auto index = at - members.begin();
      for (const auto& b : m.blocks) {
        if (b.end() > slots) continue;
        blocks_[static_cast<std::size_t>(index)].push_back(b);
        std::fill_n(owner_.begin() + slots + b.first, b.size, static_cast<std::int32_t>(index));
      }
    }
    taken_.assign(slots + std::size_t{1}, 0);
    for (std::uint32_t s = 0; s < slots; ++s)
      taken_[s + 1] = taken_[s] + (owner_[slots + s] == nobody ? 0 : 1);
    for (std::size_t n = slots - 1; n > 0; --n)
      owner_[n] = owner_[2 * n] == owner_[2 * n + 1] ? owner_[2 * n] : several;
  }
  bool empty() const { return owner_.empty(); }
  std::int32_t of(const block& b) const { return owner_[slots_ / b.size + b.first / b.size]; }
  // Slots in it that a member of today had.
  std::uint32_t taken(const block& b) const { return taken_[b.end()] - taken_[b.first]; }
  const std::vector<block>& blocks(std::size_t member) const { return blocks_[member]; }

 private:
  std::uint32_t slots_ = 0;
  std::vector<std::int32_t> owner_;
  std::vector<std::uint32_t> taken_;
  std::vector<std::vector<block>> blocks_;
};

// Hands out what is free, from the largest blocks to single slots. Whoever has room for a block of a size
// takes one: so each member's limit is filled from its binary digits, and the fewest blocks cover it all.
class handing_out {
 public:
  handing_out(std::uint32_t slots, const std::vector<double>& speeds, const std::vector<count>& limits,
              const former_owners& before, std::vector<plan_member>& plan)
      : slots_(slots),
        speeds_(speeds),
        limits_(limits),
        before_(before),
        plan_(plan),
        given_(plan.size()),
        pieces_(static_cast<std::size_t>(std::bit_width(slots))) {
    std::vector<block> kept;
    for (std::size_t i = 0; i < plan.size(); ++i)
      for (const auto& b : plan[i].blocks) {
        given_[i] += b.size;
        kept.push_back(b);
      }
    std::sort(kept.begin(), kept.end());
    std::uint32_t from = 0;
    for (const auto& k : kept) {
      add_free(from, k.first);
      from = k.end();
    }
    add_free(from, slots);
  }

  void run(std::uint32_t largest) {
    for (std::uint32_t size = slots_; size > 0; size /= 2) {
      auto& here = pieces_[static_cast<std::size_t>(std::countr_zero(size))];
      free_.insert(free_.end(), here.begin(), here.end());
      std::sort(free_.begin(), free_.end());
      size_ = size;
      if (size <= largest) one_size();
      std::vector<std::uint32_t> halves;
      for (const auto first : free_)
        for (const auto half : {first, first + size / 2}) halves.push_back(half);
      PERDURA_CHECK(size > 1 || free_.empty(), "every slot has somebody with room for it");
      free_ = std::move(halves);
    }
  }

 private:
  void add_free(std::uint32_t first, std::uint32_t end) {
    while (first < end) {
      auto size =
          first == 0 ? std::bit_floor(end) : std::min(first & (~first + 1), std::bit_floor(end - first));
      pieces_[static_cast<std::size_t>(std::countr_zero(size))].push_back(first);
      first += size;
    }
  }
  bool has_room(std::size_t i) const { return given_[i] + size_ <= limits_[i]; }
  void give(std::size_t i, std::uint32_t first) {
    plan_[i].blocks.push_back({first, size_});
    given_[i] += size_;
  }

  void one_size() {
    if (free_.empty()) return;
    if (!before_.empty()) leave_in_place();
    const auto takers = choose_takers();
    if (takers.empty()) return;
    place(takers);
  }

  void leave_in_place() {
    std::erase_if(free_, [&](std::uint32_t first) {
      const auto who = before_.of({first, size_});
      if (who < 0 || !has_room(static_cast<std::size_t>(who))) return false;
      give(static_cast<std::size_t>(who), first);
      return true;
    });
  }

  // As many as there are free blocks, those first who would be done soonest.
  std::vector<std::size_t> choose_takers() const {
    using taker = std::pair<double, std::size_t>;
    std::vector<taker> list;
    auto given = [&](std::size_t i, count more) {
      return static_cast<double>(given_[i] + more) / speeds_[i];
    };
    for (std::size_t i = 0; i < plan_.size(); ++i)
      if (has_room(i)) list.emplace_back(given(i, size_), i);
    std::priority_queue<taker, std::vector<taker>, std::greater<>> queue(std::greater<>{}, std::move(list));
    std::vector<std::size_t> takers;
    std::vector<count> taken(plan_.size());
    while (takers.size() < free_.size() && !queue.empty()) {
      const auto i = queue.top().second;
      queue.pop();
      takers.push_back(i);
      taken[i] += size_;
      if (given_[i] + taken[i] + size_ <= limits_[i]) queue.emplace(given(i, taken[i] + size_), i);
    }
    return takers;
  }

  // First around what a taker had, then where nobody had anything.
  void place(std::vector<std::size_t> takers) {
    if (before_.empty()) {
      std::sort(takers.begin(), takers.end());
      for (std::size_t k = 0; k < takers.size(); ++k) give(takers[k], free_[k]);
      free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(takers.size()));
      return;
    }
    std::vector<char> open(slots_ / size_, 0);
    for (const auto first : free_) open[first / size_] = 1;
    std::vector<std::size_t> homeless;
    for (const auto i : takers) {
      const auto& had = before_.blocks(i);
      const auto home =
          std::find_if(had.begin(), had.end(), [&](const block& b) { return open[b.first / size_] != 0; });
      if (home == had.end()) {
        homeless.push_back(i);
        continue;
      }
      open[home->first / size_] = 0;
      give(i, home->first / size_ * size_);
    }
    std::erase_if(free_, [&](auto first) { return open[first / size_] == 0; });
    std::stable_sort(free_.begin(), free_.end(), [&](auto a, auto b) {
      return before_.taken({a, size_}) < before_.taken({b, size_});
    });
    for (std::size_t k = 0; k < homeless.size(); ++k) give(homeless[k], free_[k]);
    free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(homeless.size()));
    std::sort(free_.begin(), free_.end());
  }

  const std::uint32_t slots_;
  const std::vector<double>& speeds_;
  const std::vector<count>& limits_;
  const former_owners& before_;
  std::vector<plan_member>& plan_;
  std::vector<count> given_;
  std::vector<std::vector<std::uint32_t>> pieces_;  // by logarithm of the size
  std::vector<std::uint32_t> free_;                 // sorted; of size_
  std::uint32_t size_ = 0;
};

}  // namespace

std::vector<plan_member> plan_blocks(std::uint32_t slots, std::vector<candidate> candidates,
                                     std::uint32_t largest_block, const std::vector<plan_member>& before) {
  PERDURA_CHECK(std::has_single_bit(slots) && !candidates.empty(),
                "slots are a power of two, and somebody computes them");
  std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.who < b.who; });
  std::vector<plan_member> plan;
  std::vector<count> kept(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    for (const auto& b : candidates[i].kept) {
      PERDURA_CHECK(is_aligned(b) && b.end() <= slots, "a kept block is one of the tree's nodes");
      kept[i] += b.size;
    }
    plan.push_back({candidates[i].who, std::move(candidates[i].kept)});
  }
  const auto speeds = speeds_of(candidates);
  const auto limits = limits_of(slots, speeds, kept);
  const former_owners former(slots, candidates, before);
  handing_out(slots, speeds, limits, former, plan).run(largest_block == 0 ? slots : largest_block);
  for (auto& m : plan) std::sort(m.blocks.begin(), m.blocks.end());
  return plan;
}

}  // namespace perdura::coordinator
