// Where workers cannot talk to each other though both live: who goes so that the others can. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "actors/base/ids.hpp"

namespace perdura::coordinator {

using broken_link = std::pair<incarnation, incarnation>;  // the lower one first
broken_link link_between(const incarnation& a, const incarnation& b);

// What it costs to do without a worker.
struct departure_cost {
  std::uint64_t tiles{};  // held
  std::uint64_t slots{};
  std::uint64_t age{};  // larger for those that came earlier
  auto operator<=>(const departure_cost&) const = default;
};

// The smallest set of workers that has an end of each link; of equals the one that costs least: less state,
// fewer slots, then the newest. Exact for some links, by degree for many. Sorted.
std::vector<incarnation> smallest_cover(const std::vector<broken_link>& links,
                                        const std::map<incarnation, departure_cost>& costs);

// Links that break again and again.
class link_record {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  void broke(const broken_link& link, time_point now);
  void forget(const incarnation& who);
  // Those that broke too often of late.
  std::vector<broken_link> hopeless(time_point now) const;

 private:
  static constexpr std::size_t breaks_max = 5;
  static constexpr std::chrono::seconds window{10};
  std::map<broken_link, std::deque<time_point>> breaks_;
};

}  // namespace perdura::coordinator
