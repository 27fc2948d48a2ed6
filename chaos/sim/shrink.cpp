#include "chaos/sim/shrink.hpp"

#include <algorithm>
#include <cctype>

#include "chaos/sim/world.hpp"

namespace perdura::sim {

namespace {

class shrinker {
 public:
  shrinker(scenario s, std::string violated, broken_rules broken, std::uint32_t runs_max)
      : best_(std::move(s)),
        violated_(std::move(violated)),
        kind_(kind_of(violated_)),
        broken_(broken),
        runs_max_(runs_max) {}

  shrunk run() {
    for (scenario before; before != best_ && runs_ < runs_max_;) {
      before = best_;
      remove_faults();
      shrink_cluster();
      shorten();
    }
    return {best_, violated_, runs_};
  }

 private:
  bool keep_if_broken(const scenario& candidate) {
    if (candidate == best_ || runs_ >= runs_max_) return false;
    ++runs_;
    const auto r = run_scenario(candidate, broken_);
    if (!r.violated || kind_of(*r.violated) != kind_) return false;
    best_ = candidate;
    violated_ = *r.violated;
    return true;
  }

  // Halves, quarters, ... then one at a time.
  void remove_faults() {
    for (auto size = std::max<std::size_t>(1, best_.faults.size() / 2);; size /= 2) {
      for (std::size_t first = 0; first < best_.faults.size();) {
        auto fewer = best_;
        const auto begin = fewer.faults.begin() + static_cast<std::ptrdiff_t>(first);
        fewer.faults.erase(begin,
                           begin + static_cast<std::ptrdiff_t>(std::min(size, fewer.faults.size() - first)));
        if (!keep_if_broken(fewer)) first += size;
      }
      if (size <= 1) return;
    }
  }

  template <class T>
  void lower(T scenario::*what, T least, bool by_half) {
    while (best_.*what > least) {
      auto smaller = best_;
      smaller.*what = by_half ? best_.*what / 2 : best_.*what - 1;
      if (!keep_if_broken(smaller)) return;
    }
  }

  void shrink_cluster() {
    lower<std::uint32_t>(&scenario::workers, 1, false);
    lower<std::uint32_t>(&scenario::tiles, 1, false);
    lower<std::uint32_t>(&scenario::slots, 2, true);
    if (best_.sharding > 0) lower<std::uint32_t>(&scenario::sharding, 1, false);
    auto plain = best_;
    plain.copies = plain.sharding = 0;
    keep_if_broken(plain);
    plain = best_;
    plain.steps = 1'000'000;
    keep_if_broken(plain);
  }

  // What lasts long lasts shorter, what waits comes earlier.
  void shorten() {
    for (std::size_t i = 0; i < best_.faults.size(); ++i) {
      while (best_.faults[i].lasts > 1'000) {
        auto shorter = best_;
        shorter.faults[i].lasts /= 2;
        if (!keep_if_broken(shorter)) break;
      }
      for (;;) {
        const auto before = i == 0 ? 0 : best_.faults[i - 1].when;
        const auto gap = (best_.faults[i].when - before) / 2;
        if (gap < 500) break;
        auto sooner = best_;
        for (auto j = i; j < sooner.faults.size(); ++j) sooner.faults[j].when -= gap;
        if (!keep_if_broken(sooner)) break;
      }
    }
  }

  scenario best_;
  std::string violated_;
  const std::string kind_;
  const broken_rules broken_;
  const std::uint32_t runs_max_;
  std::uint32_t runs_ = 0;
};

}  // namespace

std::string kind_of(const std::string& violated) {
  std::string kind;
  for (const char c : violated)
    if (!std::isdigit(static_cast<unsigned char>(c))) kind += c;
  return kind;
}

shrunk shrink(const scenario& s, const std::string& violated, broken_rules broken, std::uint32_t runs_max) {
  return shrinker(s, violated, broken, runs_max).run();
}

}  // namespace perdura::sim
