// How fast each worker is, measured, and what to do about one that holds the others up. Pure: fed with
// heartbeats, asked for advice. A worker that waits, is paused or gathers does no slots and is not slow.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/base/control.hpp"
#include "actors/base/plan.hpp"

namespace perdura::coordinator {

// Time per slot of each worker, from the cumulative counts in its heartbeats. One sample is what it did
// between two heartbeats that are at least a step apart: a stop in bursts or a quota shows in it as it shows
// in the step. What counts is the middle of the recent samples, so that one slow sample is no trend, and
// three in a row are.
class pace_book {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  // True when it brought a new sample.
  bool heard(const heartbeat& h, time_point now);
  void forget(const incarnation& who) { paces_.erase(who); }

  // None before it has been seen for some steps. One that was given no slots for long, while others computed,
  // is slowly thought faster again: nothing else would ever show that it has recovered.
  std::optional<double> slots_per_second(const incarnation& who) const;
  // Of the workers known, the one in the middle; 1 when none is known: only ratios count.
  double usual() const;
  double speed_or_usual(const incarnation& who) const;
  // How far its samples are from each other, as a fraction of their middle; about one standard deviation. At
  // least as far as those of the worker in the middle: a few may agree by chance.
  double spread(const incarnation& who) const;
  std::size_t samples(const incarnation& who) const;

 private:
  struct pace {
    heartbeat anchor;
    bool is_warm = false;             // the first sample is of a process that has just begun
    std::deque<double> slot_seconds;  // newest last
    double speed = 0;                 // slots per second; 0: too few samples
    double spread = 0;
    double spread_before = 0;  // its last change
    time_point newest;
  };
  static double middle(std::vector<double> values);
  static double center(const std::deque<double>& values);
  static double deviation(const std::deque<double>& values);
  static void follow_change(pace& p);

  std::map<incarnation, pace> paces_;
  time_point newest_;
};

struct straggler_options {
  bool may_move = true;                       // elastic.rebalance
  bool may_let_go = true;                     // elastic.evict_slow
  double gain_least = 0.04;                   // of the predicted step: less is not worth a plan
  double spare_gain = 0.10;                   // that a spare must bring: it has to copy state first
  double slow_below = 0.5;                    // of the usual speed: only such a worker is replaced or let go
  unsigned changes_at_once = 4;               // advices in a row,
  std::chrono::milliseconds between{30'000};  // then one for each of these
  std::chrono::milliseconds patience{5'000};  // a worker is slow for so long before it is replaced or let go
  std::chrono::milliseconds consider_every{50};  // advice is not looked for more often
};

// The job as the planner sees it.
struct crew {
  std::uint32_t slots{};
  std::uint32_t largest_block{};     // 0: any
  std::vector<plan_member> members;  // of the plan in effect, without leavers
  std::vector<incarnation> spares;
  std::size_t members_least = 1;  // nobody is let go below
};

enum class remedy : std::uint8_t { move_blocks, replace, let_go };

struct advice {
  remedy what{};
  incarnation who;  // replaced or let go; of a move the one that is relieved most
  std::string why;
};

class straggler_watch {
 public:
  using time_point = pace_book::time_point;
  explicit straggler_watch(straggler_options options) : options_(options), tokens_(options.changes_at_once) {}

  bool heard(const heartbeat& h, time_point now) { return paces_.heard(h, now); }
  void forget(const incarnation& who);
  const pace_book& paces() const { return paces_; }

  bool is_due(time_point now) const;
  // What to do now, if anything; to be followed at once. In this order: move blocks; replace by a spare; let
  // go. Bounded: after some advices in a row one per `between`.
  std::optional<advice> consider(const crew& c, time_point now);

 private:
  std::optional<advice> move(const crew& c) const;
  std::optional<advice> relieve(const crew& c, time_point now);
  double noise(const incarnation& who) const;

  const straggler_options options_;
  pace_book paces_;
  double tokens_;
  std::optional<time_point> refilled_;
  std::optional<time_point> considered_;
  std::map<incarnation, time_point> slow_since_;
};

// Time of a step's slots: its slowest member's.
double predicted_seconds(const std::vector<plan_member>& members, const pace_book& paces);

}  // namespace perdura::coordinator
