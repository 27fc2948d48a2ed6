#include "coordinator/job_course.hpp"

#include <algorithm>

#include "actors/base/log.hpp"

namespace perdura::coordinator {

namespace {

constexpr std::size_t steps_max = 10'000'000;
constexpr std::size_t steps_per_block = 64;
constexpr std::size_t rate_window = 20;  // steps

std::int64_t unix_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

double ms_between(time_point a, time_point b) {
  return std::chrono::duration<double, std::milli>(b - a).count();
}

std::string field_of(const event& e, const std::string& name) {
  for (const auto& [key, value] : e.fields)
    if (key == name) return value;
  return {};
}

}  // namespace

job_course::job_course(std::string job, journal& memory) : job_(std::move(job)), journal_(memory) {
  if (auto steps = journal_.steps_of(job_))
    steps_ = std::move(*steps);
  else
    log::error(steps.failure().message);
}

void job_course::step_decided(const verdict& v, time_point now) {
  const auto place = v.step.value - 1;
  if (place >= steps_max) return;
  const bool is_newest = place >= steps_.size() || steps_[place].step.value == 0 || v.timeline > timeline_;
  if (v.timeline > timeline_) {
    // Steps that were abandoned come again.
    timeline_ = v.timeline;
    if (steps_.size() > place) steps_.resize(place);
  }
  if (!is_newest) return;
  const bool is_next = place >= steps_.size();
  if (is_next) steps_.resize(place + 1);
  steps_[place] = {v.step, v.outcome.loss, is_next && last_step_at_ ? ms_between(*last_step_at_, now) : 0};
  if (is_next) last_step_at_ = now;
  const auto first = place / steps_per_block * steps_per_block;
  const auto end = std::min<std::size_t>(steps_.size(), first + steps_per_block);
  journal_.put_steps(job_, place / steps_per_block,
                     {steps_.begin() + static_cast<std::ptrdiff_t>(first),
                      steps_.begin() + static_cast<std::ptrdiff_t>(end)});
  if (recovering_ && recovering_->decided && v.step > recovering_->info.step) {
    recovering_->info.committed_ms = ms_between(recovering_->sign, now);
    recoveries_.back() = recovering_->info;
    recovering_.reset();
  }
}

bool job_course::noticed(const event& e, time_point now) {
  bool is_first_sign = false;
  if (e.kind == event_kind::era_opened) {
    const auto cause = field_of(e, "cause");
    if (cause == "start" || cause == "resume") return false;
    if (!recovering_) {
      is_first_sign = true;
      recovering_.emplace();
      recovering_->sign = now;
      recovering_->info.time_ms = unix_ms();
      recovering_->info.kind = cause;
      recovering_->info.what = e.reason;
      recoveries_.emplace_back();
    }
    recovering_->decided = false;
  }
  if (!recovering_) return false;
  auto& info = recovering_->info;
  if (e.kind == event_kind::worker_lost && info.kind != "lost") {
    info.kind = "lost";
    info.what = e.subject + ": " + e.reason;
  }
  if (e.kind == event_kind::recovery_decided) {
    recovering_->decided = true;
    info.detected_ms = ms_between(recovering_->sign, now);
    info.recomputed_slots = std::stoull(field_of(e, "recomputed_slots"));
    info.step = step_number(std::stoull(field_of(e, "settled")));
  }
  recoveries_.back() = info;
  return is_first_sign;
}

void job_course::interrupted() {
  recovering_.reset();
  last_step_at_.reset();
}

double job_course::steps_per_s() const {
  if (steps_.size() < 2) return 0;
  const auto count = std::min(rate_window, steps_.size() - 1);
  double ms = 0;
  for (std::size_t i = 0; i < count; ++i) ms += steps_[steps_.size() - 1 - i].ms;
  return ms > 0 ? 1000.0 * static_cast<double>(count) / ms : 0;
}

}  // namespace perdura::coordinator
