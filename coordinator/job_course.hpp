// A job's course as people see it: what each step came to, what went wrong on the way and how long that took.
// Nothing is decided by it.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/admin/service.hpp"
#include "coordinator/journal.hpp"

namespace perdura::coordinator {

class job_course {
 public:
  // Reads the steps that were written down before.
  job_course(std::string job, journal& memory);

  void step_decided(const verdict& v, time_point now);
  // From the first sign of a failure to the next committed step. True: this is the first sign of one.
  bool noticed(const event& e, time_point now);
  // What follows is no delay of a step: the job does not run.
  void interrupted();

  const std::vector<admin::step_info>& steps() const { return steps_; }
  const std::vector<admin::recovery_info>& recoveries() const { return recoveries_; }
  // Steps in a second of late; 0: not known.
  double steps_per_s() const;

 private:
  struct recovery_watch {
    admin::recovery_info info;
    time_point sign;
    bool decided = false;
  };

  const std::string job_;
  journal& journal_;
  std::vector<admin::step_info> steps_;  // step n at n - 1; a step not (yet) heard of is 0
  timeline_number timeline_;             // of the last one heard
  std::optional<time_point> last_step_at_;
  std::vector<admin::recovery_info> recoveries_;
  std::optional<recovery_watch> recovering_;
};

}  // namespace perdura::coordinator
