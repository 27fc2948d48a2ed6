// What a person sees of a running job: a bar that is redrawn on a terminal, a line every few seconds
// elsewhere.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <iosfwd>
#include <string>

#include "coordinator/admin/service.hpp"

namespace perdura::console {

class progress_view {
 public:
  using clock = std::chrono::steady_clock;

  // On standard output, as it is.
  progress_view();
  progress_view(std::ostream& out, bool is_terminal) : out_(out), is_terminal_(is_terminal) {}
  progress_view(const progress_view&) = delete;
  progress_view& operator=(const progress_view&) = delete;
  ~progress_view();  // leaves the last bar on its own line

  void show(const admin::job_info& job, std::size_t workers);
  // A line that stays, above the bar.
  void say(const std::string& line);

 private:
  void erase();
  std::chrono::seconds left(const admin::job_info& job, clock::time_point now);

  std::ostream& out_;
  bool is_terminal_;
  bool is_drawn_ = false;
  std::string job_;  // for which the next two hold
  std::uint64_t first_step_ = 0;
  clock::time_point first_seen_{};
  clock::time_point next_line_{};
  clock::time_point began_ = clock::now();
};

// The line itself, `columns` wide at most: bar, step, loss, images/s, workers, era, time left.
std::string progress_line(const admin::job_info& job, std::size_t workers, std::chrono::seconds left,
                          std::size_t columns);

std::size_t count_members(const std::vector<admin::worker_info>& workers);

// Empty: the newest job that has not ended, else the newest.
result<admin::job_info> find_job(admin::admin_api& api, const std::string& id_or_name);

// Shows a job until it has ended or `stop` says so; what it was last.
result<admin::job_info> watch_job(admin::admin_api& api, const std::string& job, progress_view& view,
                                  const std::function<bool()>& stop);

}  // namespace perdura::console
