#include "coordinator/logic/checkpoint_watch.hpp"

namespace perdura::coordinator {

checkpoint_watch::advice checkpoint_watch::tick(bool computes, time_point now) {
  const auto passed = ticked_ && computes ? now - *ticked_ : std::chrono::nanoseconds(0);
  ticked_ = now;
  since_saved_ += passed;
  since_asked_ += passed;
  advice a;
  if (interval_.count() > 0 && since_asked_ >= interval_) {
    a.snapshot = true;
    since_asked_ = {};
  }
  if (promise_.count() > 0 && since_saved_ >= promise_ && !is_late_) {
    is_late_ = true;
    warning_ = "no checkpoint for " + std::to_string(promise_.count()) + " s of computing, the last one is " +
               (saved_ ? "of step " + to_string(*saved_) : std::string("none"));
    a.alarm = warning_;
  }
  return a;
}

std::string checkpoint_watch::committed(step_number step, const std::string& weights, time_point now) {
  // A commit's news may have been long under way: what passed until now is counted by the next tick at most.
  ticked_ = now;
  since_saved_ = {};
  since_asked_ = {};
  is_late_ = false;
  const bool stands_still = saved_ && *saved_ < step && weights_ == weights;
  warning_ = stands_still ? "nothing that is trained has changed between the checkpoints of steps " +
                                to_string(*saved_) + " and " + to_string(step)
                          : "";
  saved_ = step;
  weights_ = weights;
  return warning_;
}

}  // namespace perdura::coordinator
