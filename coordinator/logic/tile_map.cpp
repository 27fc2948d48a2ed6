// Holders of tiles: spread over failure domains, even in bytes, moved no more than needed.
#include <algorithm>
#include <limits>
#include <numeric>

#include "actors/base/check.hpp"
#include "coordinator/logic/failure_domains.hpp"
#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

namespace {

constexpr double crowded = 2.0;  // times its share: a farther rack or zone is not worth more
constexpr double uneven = 1.1;   // times its share: worth copying tiles to others
constexpr int owner_rounds = 8;  // each one evens out; the first does nearly all of it

// The least of a range of positions; the leftmost of equals. Updates and queries take logarithmic time.
class least_loaded {
 public:
  using range = failure_domains::range;
  static constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

  explicit least_loaded(std::uint32_t size) : size_(size), load_(size), tree_(2 * std::size_t{size}) {
    for (std::uint32_t p = 0; p < size; ++p) tree_[size + p] = p;
    for (std::uint32_t n = size; n-- > 1;)
      tree_[n] = better(tree_[std::size_t{2} * n], tree_[std::size_t{2} * n + 1]);
  }
  double load(std::uint32_t p) const { return load_[p]; }
  void set(std::uint32_t p, double load) {
    load_[p] = load;
    for (auto n = (size_ + p) / 2; n > 0; n /= 2)
      tree_[n] = better(tree_[std::size_t{2} * n], tree_[std::size_t{2} * n + 1]);
  }
  std::uint32_t in(range r) const {
    auto best = none;
    for (auto first = r.first + size_, end = r.end + size_; first < end; first /= 2, end /= 2) {
      if (first % 2 == 1) best = better(best, tree_[first++]);
      if (end % 2 == 1) best = better(best, tree_[--end]);
    }
    return best;
  }
  // Outside of the given ranges.
  std::uint32_t outside(std::vector<range>& ranges) const {
    std::sort(ranges.begin(), ranges.end(), [](auto a, auto b) { return a.first < b.first; });
    auto best = none;
    std::uint32_t from = 0;
    for (const auto& r : ranges) {
      if (from < r.first) best = better(best, in({from, r.first}));
      from = std::max(from, r.end);
    }
    return from < size_ ? better(best, in({from, size_})) : best;
  }

 private:
  std::uint32_t better(std::uint32_t a, std::uint32_t b) const {
    if (a == none || b == none) return a == none ? b : a;
    if (load_[a] != load_[b]) return load_[a] < load_[b] ? a : b;
    return std::min(a, b);
  }
  std::uint32_t size_;
  std::vector<double> load_;
  std::vector<std::uint32_t> tree_;
};

std::vector<double> capacities_of(const std::vector<candidate>& members) {
  double known = 0, sum = 0;
  for (const auto& m : members)
    if (m.memory_bytes > 0) {
      known += 1;
      sum += static_cast<double>(m.memory_bytes);
    }
  std::vector<double> capacities;
  capacities.reserve(members.size());
  for (const auto& m : members)
    capacities.push_back(m.memory_bytes > 0 ? static_cast<double>(m.memory_bytes) * known / sum : 1.0);
  return capacities;
}

// Chooses holders one by one and knows what each holds by now. A load is what a member holds for its share of
// all memory.
class holder_choice {
 public:
  holder_choice(const std::vector<candidate>& members, double bytes)
      : domains_(members), capacities_(capacities_of(members)), loads_(domains_.members()) {
    fair_ = bytes / std::accumulate(capacities_.begin(), capacities_.end(), 0.0);
  }

  double load(member_index m) const { return loads_.load(domains_.position_of(m)); }
  double fair() const { return fair_; }
  double capacity(member_index m) const { return capacities_[m]; }
  void add(member_index m, double weight) {
    const auto p = domains_.position_of(m);
    loads_.set(p, loads_.load(p) + weight / capacities_[m]);
  }

  // How near the member is to the nearest of the holders, itself left out.
  nearness nearest(const std::vector<member_index>& holders, member_index to) const {
    auto least = nearness::apart;
    for (const auto h : holders)
      if (h != to) least = std::min(least, domains_.between(h, to));
    return least;
  }

  // One more holder beside these, who are fewer than all.
  member_index choose(const std::vector<member_index>& holders) {
    for (const auto d : {domain::zone, domain::rack, domain::host}) {
      // Nobody shares a domain: the next level down gives the same.
      if (d != domain::host && domains_.count(d) == domains_.members()) continue;
      const auto p = beside(holders, d);
      if (p == least_loaded::none) continue;
      if (d == domain::host || loads_.load(p) <= crowded * fair_) return domains_.member_at(p);
    }
    excluded_.clear();
    for (const auto h : holders) excluded_.push_back({domains_.position_of(h), domains_.position_of(h) + 1});
    return domains_.member_at(loads_.outside(excluded_));
  }

  // Whom to let go of too many: whoever is nearest to another, of equals the most loaded, the last.
  member_index choose_leaver(const std::vector<member_index>& holders) const {
    member_index worst = holders.back();
    for (auto h = holders.rbegin() + 1; h != holders.rend(); ++h) {
      const auto a = nearest(holders, *h), b = nearest(holders, worst);
      if (a < b || (a == b && load(*h) > load(worst))) worst = *h;
    }
    return worst;
  }

  std::size_t hosts() const { return domains_.count(domain::host); }
  // How many of the holders share a host with one before them.
  std::size_t doubles(const std::vector<member_index>& holders) const {
    std::size_t n = 0;
    for (std::size_t i = 1; i < holders.size(); ++i)
      n += std::any_of(holders.begin(), holders.begin() + static_cast<std::ptrdiff_t>(i),
                       [&](auto h) { return domains_.between(h, holders[i]) == nearness::same_host; });
    return n;
  }

 private:
  std::uint32_t beside(const std::vector<member_index>& holders, domain d) {
    excluded_.clear();
    for (const auto h : holders) excluded_.push_back(domains_.range_of(d, h));
    return loads_.outside(excluded_);
  }

  failure_domains domains_;
  std::vector<double> capacities_;
  least_loaded loads_;
  double fair_ = 0;
  std::vector<failure_domains::range> excluded_;
};

bool contains(const std::vector<member_index>& list, member_index m) {
  return std::find(list.begin(), list.end(), m) != list.end();
}

// What each tile's present holders go on holding: no more than wanted, and none on a host that has another,
// as long as there are hosts enough.
tile_map keep_holders(const std::vector<std::uint32_t>& weights, const tile_map& before, std::size_t wanted,
                      holder_choice& choice) {
  tile_map map(weights.size());
  for (std::size_t t = 0; t < std::min(map.size(), before.size()); ++t) {
    map[t] = before[t];
    for (const auto m : map[t]) choice.add(m, weights[t]);
  }
  const auto doubles_max = wanted - std::min(wanted, choice.hosts());
  for (std::size_t t = 0; t < map.size(); ++t)
    while (map[t].size() > wanted || choice.doubles(map[t]) > doubles_max) {
      const auto leaver = choice.choose_leaver(map[t]);
      choice.add(leaver, -static_cast<double>(weights[t]));
      std::erase(map[t], leaver);
    }
  return map;
}

// If anybody holds far more or far less than its share, those above theirs hand tiles to those below, as long
// as copies come no nearer to each other.
void even_out(const std::vector<std::uint32_t>& weights, std::size_t members, holder_choice& choice,
              tile_map& map) {
  if (weights.empty()) return;
  const double fair = choice.fair();
  const double largest = *std::max_element(weights.begin(), weights.end());
  const double smallest = *std::min_element(weights.begin(), weights.end());
  bool is_uneven = false;
  for (member_index m = 0; m < members && !is_uneven; ++m) {
    const auto one = largest / choice.capacity(m);
    is_uneven = choice.load(m) > uneven * fair + one || choice.load(m) < fair / uneven - one;
  }
  if (!is_uneven) return;
  // Those with room for one more; nothing moves once there are none.
  const auto has_room = [&](member_index m) {
    return choice.load(m) + smallest / choice.capacity(m) <= fair;
  };
  std::size_t light = 0;
  for (member_index m = 0; m < members; ++m) light += has_room(m) ? 1 : 0;
  std::vector<member_index> others;
  for (std::size_t t = 0; t < map.size() && light > 0; ++t)
    for (auto& m : map[t]) {
      if (choice.load(m) <= fair || light == 0) continue;
      others = map[t];
      std::erase(others, m);
      const auto to = choice.choose(others);
      const double weight = weights[t];
      const auto load_there = choice.load(to) + weight / choice.capacity(to);
      if (load_there > fair || load_there > choice.load(m)) continue;
      if (choice.nearest(others, to) < choice.nearest(others, m)) continue;
      choice.add(m, -weight);
      choice.add(to, weight);
      light += has_room(m) ? 1 : 0;
      light -= has_room(to) ? 0 : 1;
      m = to;
    }
}

// The owner to the front: whoever owned the tile, else the holder that owns least. Then holders that own more
// than another by more than the tile hand it over, in a few rounds.
void choose_owners(const std::vector<std::uint32_t>& weights, const tile_map& before, std::size_t members,
                   tile_map& map) {
  std::vector<std::uint64_t> owned(members);
  const auto least = [&](std::size_t t) {
    return std::min_element(map[t].begin(), map[t].end(),
                            [&](auto a, auto b) { return owned[a] < owned[b]; });
  };
  const auto own = [&](std::size_t t, std::vector<member_index>::iterator owner) {
    owned[*owner] += weights[t];
    std::iter_swap(map[t].begin(), owner);
  };
  std::vector<std::size_t> open;
  for (std::size_t t = 0; t < map.size(); ++t) {
    const auto former = t < before.size() && !before[t].empty()
                            ? std::find(map[t].begin(), map[t].end(), before[t].front())
                            : map[t].end();
    if (former != map[t].end())
      own(t, former);
    else
      open.push_back(t);
  }
  for (const auto t : open) own(t, least(t));
  bool changed = true;
  for (int round = 0; changed && round < owner_rounds; ++round) {
    changed = false;
    for (std::size_t t = 0; t < map.size(); ++t) {
      const auto to = least(t);
      if (owned[map[t].front()] <= owned[*to] + weights[t]) continue;
      owned[map[t].front()] -= weights[t];
      own(t, to);
      changed = true;
    }
  }
}

tile_map all_hold(std::size_t tiles, std::size_t members, const tile_map& before) {
  tile_map map(tiles);
  std::vector<char> present(members);
  for (std::size_t t = 0; t < tiles; ++t) {
    if (t < before.size()) map[t] = before[t];
    std::fill(present.begin(), present.end(), char{0});
    for (const auto m : map[t]) present[m] = 1;
    for (member_index m = 0; m < members; ++m)
      if (present[m] == 0) map[t].push_back(m);
  }
  return map;
}

}  // namespace

tile_map plan_tiles(const std::vector<std::uint32_t>& weights, const std::vector<candidate>& members,
                    std::uint32_t replicas, const tile_map& before) {
  PERDURA_CHECK(!members.empty(), "somebody holds the state");
  PERDURA_CHECK(std::is_sorted(members.begin(), members.end(),
                               [](const auto& a, const auto& b) { return a.who < b.who; }),
                "indices are into the members of a plan");
  const auto count = members.size();
  const auto wanted = replicas == 0 ? count : std::min<std::size_t>(replicas, count);
  tile_map map;
  if (wanted == count) {
    map = all_hold(weights.size(), count, before);
  } else {
    const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
    holder_choice choice(members, all * static_cast<double>(wanted));
    map = keep_holders(weights, before, wanted, choice);
    for (std::size_t t = 0; t < map.size(); ++t)
      while (map[t].size() < wanted) {
        const auto m = choice.choose(map[t]);
        map[t].push_back(m);
        choice.add(m, weights[t]);
      }
    if (!before.empty()) even_out(weights, count, choice, map);
  }
  choose_owners(weights, before, count, map);
  return map;
}

std::vector<std::uint32_t> weights_of(const std::vector<tile>& tiles) {
  std::vector<std::uint32_t> weights;
  weights.reserve(tiles.size());
  for (const auto& t : tiles) weights.push_back(t.size);
  return weights;
}

namespace {

constexpr member_index absent = std::numeric_limits<member_index>::max();

// For each of `from` where it is in `to`; both sorted.
std::vector<member_index> indices_in(const std::vector<plan_member>& from,
                                     const std::vector<plan_member>& to) {
  std::vector<member_index> indices;
  indices.reserve(from.size());
  std::size_t at = 0;
  for (const auto& m : from) {
    while (at < to.size() && to[at].who < m.who) ++at;
    indices.push_back(at < to.size() && to[at].who == m.who ? static_cast<member_index>(at) : absent);
  }
  return indices;
}

}  // namespace

tile_map holders_among(const plan& current, const std::vector<plan_member>& members) {
  const auto index = indices_in(current.members, members);
  tile_map map(current.holders.size());
  for (std::size_t t = 0; t < map.size(); ++t)
    for (const auto m : current.holders[t])
      if (index[m] != absent) map[t].push_back(index[m]);
  return map;
}

std::vector<tile_move> tile_moves(const plan& current, const plan& next, const label_map& labels,
                                  const std::vector<std::uint32_t>& weights) {
  const auto index = indices_in(next.members, current.members);
  static const node_labels unknown;
  const auto labels_of = [&](const std::vector<plan_member>& members) {
    std::vector<const node_labels*> places;
    places.reserve(members.size());
    for (const auto& m : members) {
      const auto known = labels.find(m.who);
      places.push_back(known == labels.end() ? &unknown : &known->second);
    }
    return places;
  };
  const auto from = labels_of(current.members), to = labels_of(next.members);
  std::vector<std::uint64_t> sent(current.members.size());
  std::vector<tile_move> moves;
  for (std::uint32_t t = 0; t < next.holders.size() && t < current.holders.size(); ++t) {
    const auto& sources = current.holders[t];
    for (const auto m : next.holders[t]) {
      if (sources.empty() || (index[m] != absent && contains(sources, index[m]))) continue;
      auto best = absent;
      auto how_near = nearness::apart;
      for (const auto s : sources) {
        const auto near = nearness_of(*from[s], *to[m]);
        if (best == absent || near < how_near || (near == how_near && sent[s] < sent[best])) {
          best = s;
          how_near = near;
        }
      }
      sent[best] += t < weights.size() ? weights[t] : 1;
      moves.push_back({tile_id(t), current.members[best].who, next.members[m].who});
    }
  }
  return moves;
}

}  // namespace perdura::coordinator
