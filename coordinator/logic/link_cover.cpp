#include "coordinator/logic/link_cover.hpp"

#include <algorithm>
#include <bit>
#include <set>

namespace perdura::coordinator {

namespace {

constexpr std::size_t exact_max = 16;  // workers with a broken link, for trying all sets

struct total {
  int size = 0;
  departure_cost cost;
  auto operator<=>(const total&) const = default;
};

departure_cost cost_of(const std::map<incarnation, departure_cost>& costs, const incarnation& who) {
  const auto c = costs.find(who);
  return c == costs.end() ? departure_cost{} : c->second;
}

std::vector<incarnation> ends_of(const std::vector<broken_link>& links) {
  std::set<incarnation> ends;
  for (const auto& [a, b] : links) ends.insert({a, b});
  return {ends.begin(), ends.end()};
}

std::vector<incarnation> exact_cover(const std::vector<broken_link>& links,
                                     const std::vector<incarnation>& ends,
                                     const std::map<incarnation, departure_cost>& costs) {
  std::vector<std::uint32_t> masks;
  const auto bit = [&](const incarnation& who) {
    return 1U << (std::lower_bound(ends.begin(), ends.end(), who) - ends.begin());
  };
  masks.reserve(links.size());
  for (const auto& [a, b] : links) masks.push_back(bit(a) | bit(b));
  std::uint32_t best = (1U << ends.size()) - 1;
  const auto weigh = [&](std::uint32_t set) {
    total t{std::popcount(set), {}};
    for (std::size_t i = 0; i < ends.size(); ++i) {
      if (!((set >> i) & 1U)) continue;
      const auto c = cost_of(costs, ends[i]);
      t.cost.tiles += c.tiles;
      t.cost.slots += c.slots;
      t.cost.age += c.age;
    }
    return t;
  };
  auto least = weigh(best);
  for (std::uint32_t set = 1; set < 1U << ends.size(); ++set) {
    if (std::popcount(set) > least.size) continue;
    if (!std::all_of(masks.begin(), masks.end(), [&](auto m) { return (m & set) != 0; })) continue;
    if (const auto t = weigh(set); t < least) {
      least = t;
      best = set;
    }
  }
  std::vector<incarnation> cover;
  for (std::size_t i = 0; i < ends.size(); ++i)
    if ((best >> i) & 1U) cover.push_back(ends[i]);
  return cover;
}

// Whoever has most of the links that are left, the cheapest of equals, until none is left.
std::vector<incarnation> cover_by_degree(std::vector<broken_link> links,
                                         const std::map<incarnation, departure_cost>& costs) {
  std::vector<incarnation> cover;
  while (!links.empty()) {
    std::map<incarnation, std::size_t> degree;
    for (const auto& [a, b] : links) {
      ++degree[a];
      ++degree[b];
    }
    const auto most = std::max_element(degree.begin(), degree.end(), [&](const auto& a, const auto& b) {
      return a.second != b.second ? a.second < b.second : cost_of(costs, a.first) > cost_of(costs, b.first);
    });
    const auto who = most->first;
    cover.push_back(who);
    std::erase_if(links, [&](const auto& l) { return l.first == who || l.second == who; });
  }
  std::sort(cover.begin(), cover.end());
  return cover;
}

}  // namespace

broken_link link_between(const incarnation& a, const incarnation& b) { return std::minmax(a, b); }

std::vector<incarnation> smallest_cover(const std::vector<broken_link>& links,
                                        const std::map<incarnation, departure_cost>& costs) {
  const auto ends = ends_of(links);
  if (ends.empty()) return {};
  return ends.size() <= exact_max ? exact_cover(links, ends, costs) : cover_by_degree(links, costs);
}

void link_record::broke(const broken_link& link, time_point now) {
  auto& times = breaks_[link];
  times.push_back(now);
  if (times.size() > breaks_max) times.pop_front();
}

void link_record::forget(const incarnation& who) {
  std::erase_if(breaks_, [&](const auto& b) { return b.first.first == who || b.first.second == who; });
}

std::vector<broken_link> link_record::hopeless(time_point now) const {
  std::vector<broken_link> found;
  for (const auto& [link, times] : breaks_)
    if (times.size() >= breaks_max && now - times.front() <= window) found.push_back(link);
  return found;
}

}  // namespace perdura::coordinator
