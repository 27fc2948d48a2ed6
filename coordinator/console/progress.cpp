#include "coordinator/console/progress.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <thread>

namespace perdura::console {

namespace {

constexpr std::size_t bar_width_max = 30;
constexpr std::size_t default_columns = 120;
constexpr std::chrono::seconds line_interval{5};
constexpr std::chrono::milliseconds poll_interval{250};

std::string clock_text(std::chrono::seconds t) {
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld", static_cast<long long>(t.count() / 60),
                static_cast<long long>(t.count() % 60));
  return text;
}

std::size_t terminal_columns() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return default_columns;
  return size.ws_col;
}

}  // namespace

std::string progress_line(const admin::job_info& job, std::size_t workers, std::chrono::seconds left,
                          std::size_t columns) {
  const auto total = std::max<std::uint64_t>(job.steps, 1);
  const auto done = std::min<std::uint64_t>(job.step.value, total);
  char numbers[160];
  std::snprintf(numbers, sizeof numbers, "%llu/%llu  loss %.4f  %.0f images/s  %zu %s  era %s",
                static_cast<unsigned long long>(done), static_cast<unsigned long long>(total), job.loss,
                job.images_per_s, workers, workers == 1 ? "worker" : "workers", to_string(job.at).c_str());
  std::string text = numbers;
  if (job.state == admin::job_state::running)
    text += "  " + clock_text(left) + " left";
  else
    text += "  " + std::string(to_string(job.state)) + (job.why.empty() ? "" : ": " + job.why);
  const auto room = columns > text.size() + 3 ? columns - text.size() - 3 : 0;
  const auto width = std::min(bar_width_max, room);
  const auto filled = width * done / total;
  if (width > 0) text = "[" + std::string(filled, '#') + std::string(width - filled, '.') + "] " + text;
  return text.substr(0, columns);
}

progress_view::progress_view() : progress_view(std::cout, ::isatty(STDOUT_FILENO) == 1) {}

progress_view::~progress_view() {
  if (is_drawn_) out_ << std::endl;
}

void progress_view::erase() {
  if (is_drawn_) out_ << "\r\033[K";
  is_drawn_ = false;
}

std::chrono::seconds progress_view::left(const admin::job_info& job, clock::time_point now) {
  const auto step = job.step.value;
  // From the first step on: what comes before it is loading.
  if (job_ != job.id || step < first_step_ || first_step_ == 0) {
    job_ = job.id;
    first_step_ = step;
    first_seen_ = now;
  }
  if (step <= first_step_ || step >= job.steps) return {};
  const auto a_step =
      std::chrono::duration<double>(now - first_seen_) / static_cast<double>(step - first_step_);
  return std::chrono::duration_cast<std::chrono::seconds>(a_step * static_cast<double>(job.steps - step));
}

void progress_view::show(const admin::job_info& job, std::size_t workers) {
  const auto now = clock::now();
  const auto remaining = left(job, now);
  if (is_terminal_) {
    erase();
    out_ << progress_line(job, workers, remaining, terminal_columns() - 1) << std::flush;
    is_drawn_ = true;
  } else if (now >= next_line_ || has_ended(job.state)) {
    next_line_ = now + line_interval;
    say(progress_line(job, workers, remaining, default_columns));
  }
}

void progress_view::say(const std::string& line) {
  erase();
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(clock::now() - began_);
  out_ << clock_text(since) << "  " << line << std::endl;
}

std::size_t count_members(const std::vector<admin::worker_info>& workers) {
  return static_cast<std::size_t>(std::count_if(workers.begin(), workers.end(), [](const auto& w) {
    return w.state == admin::worker_state::member || w.state == admin::worker_state::leaving;
  }));
}

result<admin::job_info> find_job(admin::admin_api& api, const std::string& id_or_name) {
  auto jobs = api.jobs();
  if (!jobs) return jobs.failure();
  const admin::job_info* found = nullptr;
  std::string known;
  for (const auto& job : *jobs) {
    known += (known.empty() ? "" : ", ") + job.id + " (" + job.name + ")";
    const bool is_named = job.id == id_or_name || job.name == id_or_name;
    const bool is_better = found == nullptr || has_ended(found->state) || !has_ended(job.state);
    if (id_or_name.empty() ? is_better : is_named) found = &job;
  }
  if (found != nullptr) return *found;
  if (id_or_name.empty()) return error{errc::not_found, "there is no job yet; perdura submit FILE"};
  return error{errc::not_found,
               "no job is named \"" + id_or_name + "\"; there is " + (known.empty() ? "none" : known)};
}

result<admin::job_info> watch_job(admin::admin_api& api, const std::string& job, progress_view& view,
                                  const std::function<bool()>& stop) {
  while (true) {
    auto now = find_job(api, job);
    if (!now) return now.failure();
    auto workers = api.workers();
    if (!workers) return workers.failure();
    view.show(*now, count_members(*workers));
    if (has_ended(now->state) || stop()) return now;
    std::this_thread::sleep_for(poll_interval);
  }
}

}  // namespace perdura::console
