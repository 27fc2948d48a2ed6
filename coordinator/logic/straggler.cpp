#include "coordinator/logic/straggler.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t samples_max = 25;
constexpr std::size_t samples_least = 3;  // for a speed, and to believe in a change
constexpr std::size_t samples_few = 8;
constexpr std::size_t recent = 5;
// A worker's recent samples differ from those before by more than this, and by more than they scatter: it has
// changed, and what was before does not count.
constexpr double change_least = 0.15;
constexpr double change_deviations = 4;
// No slots for so long, while others computed: it is thought twice as fast.
constexpr std::chrono::seconds idle_doubles{60};

std::uint32_t slots_of(const plan_member& m) {
  std::uint32_t n = 0;
  for (const auto& b : m.blocks) n += b.size;
  return n;
}

std::string in_words(const char* format, double a, double b) {
  char text[96];
  std::snprintf(text, sizeof text, format, a, b);
  return text;
}

}  // namespace

// ---- paces

bool pace_book::heard(const heartbeat& h, time_point now) {
  const auto [it, is_new] = paces_.try_emplace(h.who);
  auto& p = it->second;
  if (is_new || h.slots_done < p.anchor.slots_done) {
    p.anchor = h;
    return false;
  }
  const auto slots = h.slots_done - p.anchor.slots_done;
  const double seconds = h.slot_seconds - p.anchor.slot_seconds;
  if (h.step == p.anchor.step || slots == 0 || seconds <= 0) return false;
  p.anchor = h;
  if (!p.is_warm) {
    p.is_warm = true;
    return false;
  }
  p.slot_seconds.push_back(seconds / static_cast<double>(slots));
  if (p.slot_seconds.size() > samples_max) p.slot_seconds.pop_front();
  p.newest = newest_ = now;
  follow_change(p);
  if (p.slot_seconds.size() < samples_least) return false;
  p.speed = 1 / center(p.slot_seconds);
  p.spread = deviation(p.slot_seconds);
  if (p.slot_seconds.size() < samples_few) p.spread = std::max(p.spread, p.spread_before);
  return true;
}

double pace_book::middle(std::vector<double> values) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), at, values.end());
  if (values.size() % 2 == 1) return *at;
  return (*at + *std::max_element(values.begin(), at)) / 2;
}

// Few samples: their median. More: the mean of the middle half, which stays put between two clusters.
double pace_book::center(const std::deque<double>& values) {
  std::vector<double> sorted(values.begin(), values.end());
  if (sorted.size() < samples_few) return middle(std::move(sorted));
  std::sort(sorted.begin(), sorted.end());
  const auto quarter = sorted.size() / 4;
  double sum = 0;
  for (std::size_t i = quarter; i < sorted.size() - quarter; ++i) sum += sorted[i];
  return sum / static_cast<double>(sorted.size() - 2 * quarter);
}

double pace_book::deviation(const std::deque<double>& values) {
  if (values.size() < samples_least) return 0;
  const double at = middle({values.begin(), values.end()});
  std::vector<double> distances;
  distances.reserve(values.size());
  for (const auto v : values) distances.push_back(std::abs(v - at));
  return 1.48 * middle(std::move(distances)) / at;
}

void pace_book::follow_change(pace& p) {
  auto& values = p.slot_seconds;
  if (values.size() <= recent) return;
  const double all = center(values);
  const double now = middle({values.end() - static_cast<std::ptrdiff_t>(recent), values.end()});
  if (std::abs(now / all - 1) <= std::max(change_least, change_deviations * deviation(values))) return;
  p.spread_before = deviation(values);
  values.erase(values.begin(), values.end() - static_cast<std::ptrdiff_t>(samples_least));
}

std::optional<double> pace_book::slots_per_second(const incarnation& who) const {
  const auto p = paces_.find(who);
  if (p == paces_.end() || p->second.speed == 0) return std::nullopt;
  const double measured = p->second.speed;
  const auto idle = (newest_ - p->second.newest) / idle_doubles;
  return idle <= 0 ? measured : measured * std::exp2(std::min<double>(static_cast<double>(idle), 20));
}

double pace_book::usual() const {
  std::vector<double> known;
  for (const auto& [who, p] : paces_)
    if (p.speed > 0) known.push_back(p.speed);
  return known.empty() ? 1 : middle(std::move(known));
}

double pace_book::speed_or_usual(const incarnation& who) const {
  const auto known = slots_per_second(who);
  return known ? *known : usual();
}

double pace_book::spread(const incarnation& who) const {
  std::vector<double> all;
  for (const auto& [other, p] : paces_)
    if (p.speed > 0) all.push_back(p.spread);
  const auto p = paces_.find(who);
  if (p == paces_.end() || all.empty()) return 0;
  return std::max(p->second.spread, middle(std::move(all)));
}

std::size_t pace_book::samples(const incarnation& who) const {
  const auto p = paces_.find(who);
  return p == paces_.end() ? 0 : p->second.slot_seconds.size();
}

// ---- advice

namespace {

struct paced {
  incarnation who;
  std::uint32_t slots{};
  double speed{};
};

std::vector<paced> paced_members(const std::vector<plan_member>& members, const pace_book& paces) {
  const double usual = paces.usual();
  std::vector<paced> all;
  all.reserve(members.size());
  for (const auto& m : members)
    all.push_back({m.who, slots_of(m), paces.slots_per_second(m.who).value_or(usual)});
  return all;
}

double seconds_of(const std::vector<paced>& members) {
  double longest = 0;
  for (const auto& m : members) longest = std::max(longest, m.slots / m.speed);
  return longest;
}

const paced& slowest_part(const std::vector<paced>& members) {
  return *std::max_element(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return a.slots / a.speed < b.slots / b.speed;
  });
}

// The best that whole slots allow.
double best_seconds(const crew& c, std::vector<paced> members) {
  std::vector<candidate> able;
  able.reserve(members.size());
  for (const auto& m : members) able.push_back({.who = m.who, .slots_per_second = m.speed});
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.who < b.who; });
  const auto next = plan_blocks(c.slots, std::move(able), c.largest_block);
  for (std::size_t i = 0; i < members.size(); ++i) members[i].slots = slots_of(next[i]);
  return seconds_of(members);
}

}  // namespace

double predicted_seconds(const std::vector<plan_member>& members, const pace_book& paces) {
  return seconds_of(paced_members(members, paces));
}

void straggler_watch::forget(const incarnation& who) {
  paces_.forget(who);
  slow_since_.erase(who);
}

// By how much the predicted step may be wrong.
double straggler_watch::noise(const incarnation& who) const {
  const auto n = paces_.samples(who);
  return n == 0 ? 0 : 1.2 * paces_.spread(who) / std::sqrt(static_cast<double>(n));
}

std::optional<advice> straggler_watch::move(const crew& c) const {
  const auto members = paced_members(c.members, paces_);
  const double now_s = seconds_of(members);
  double all = 0;
  for (const auto& m : members) all += m.speed;
  const auto& slow = slowest_part(members);
  const double least = std::max(options_.gain_least, 3 * noise(slow.who));
  // No assignment is faster than one that could split slots.
  if (c.slots / all >= now_s * (1 - least)) return std::nullopt;
  const double then_s = best_seconds(c, members);
  if (then_s >= now_s * (1 - least)) return std::nullopt;
  return advice{remedy::move_blocks, slow.who,
                std::to_string(slow.slots) + " slots take it " +
                    in_words("%.1f ms, the step would take %.1f ms", 1000 * now_s, 1000 * then_s)};
}

// One worker that is slow beyond what moving blocks can mend.
std::optional<advice> straggler_watch::relieve(const crew& c, time_point now) {
  const auto members = paced_members(c.members, paces_);
  const double usual = paces_.usual();
  const auto& slow = *std::min_element(members.begin(), members.end(),
                                       [](const auto& a, const auto& b) { return a.speed < b.speed; });
  std::erase_if(slow_since_, [&](const auto& s) { return s.first != slow.who; });
  if (slow.speed >= options_.slow_below * usual) {
    slow_since_.clear();
    return std::nullopt;
  }
  const auto since = slow_since_.try_emplace(slow.who, now).first->second;
  if (now - since < options_.patience) return std::nullopt;
  const double now_s = seconds_of(members);
  auto others = members;
  std::erase_if(others, [&](const auto& m) { return m.who == slow.who; });
  const auto pace = in_words("it does %.2f slots/s, others %.2f", slow.speed, usual);
  if (!c.spares.empty()) {
    auto with_spare = others;
    with_spare.push_back({c.spares.front(), 0, paces_.speed_or_usual(c.spares.front())});
    const double then_s = best_seconds(c, with_spare);
    if (then_s < now_s * (1 - options_.spare_gain))
      return advice{remedy::replace, slow.who,
                    pace + in_words("; with a spare in its place a step takes %.1f instead of %.1f ms",
                                    1000 * then_s, 1000 * now_s)};
  }
  if (others.size() < c.members_least) return std::nullopt;
  // One that the best plan gives nothing to do holds the others up with all that is not slots.
  const double then_s = best_seconds(c, others);
  if (then_s > now_s * (1 + options_.gain_least / 4)) return std::nullopt;
  return advice{remedy::let_go, slow.who,
                pace + in_words("; without it the slots of a step take %.1f instead of %.1f ms",
                                1000 * then_s, 1000 * now_s)};
}

bool straggler_watch::is_due(time_point now) const {
  return !considered_ || now - *considered_ >= options_.consider_every;
}

std::optional<advice> straggler_watch::consider(const crew& c, time_point now) {
  considered_ = now;
  if (!refilled_) refilled_ = now;
  tokens_ = std::min<double>(options_.changes_at_once,
                             tokens_ + std::chrono::duration<double>(now - *refilled_) / options_.between);
  refilled_ = now;
  if (tokens_ < 1 || c.members.size() < 2) return std::nullopt;
  std::optional<advice> found;
  if (options_.may_move) found = move(c);
  if (!found && options_.may_let_go) found = relieve(c, now);
  if (found) {
    tokens_ -= 1;
    slow_since_.clear();
  }
  return found;
}

}  // namespace perdura::coordinator
