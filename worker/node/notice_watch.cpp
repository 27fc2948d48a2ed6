#include "worker/node/notice_watch.hpp"

#include "actors/base/log.hpp"

namespace perdura::worker::node {

notice_watch::notice_watch(preemption_config config, std::function<void(const notice&)> found)
    : config_(std::move(config)), found_(std::move(found)), service_(make_metadata_service(config_)) {
  if (!config_.notice_file.empty())
    threads_.emplace_back([this] {
      watch([this] {
        return read_notice_file(config_.notice_file, config_.grace, std::chrono::system_clock::now());
      });
    });
  if (service_)
    threads_.emplace_back([this] {
      watch([this] {
        return service_->ask([this](const http_request& r) { return http_.send(r); },
                             std::chrono::system_clock::now());
      });
    });
}

notice_watch::~notice_watch() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  http_.cancel();
  for (auto& t : threads_) t.join();
}

bool notice_watch::pause() {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, config_.poll, [this] { return ending_; });
}

// A source that fails is complained about once, until it answers again.
void notice_watch::watch(const question& ask) {
  bool is_failing = false;
  do {
    const auto answer = ask();
    if (!answer) {
      const std::lock_guard lock(mutex_);
      if (!is_failing && !ending_)
        log::warn(answer.failure().message + "; no notice can come from there, it is asked again");
      is_failing = true;
      continue;
    }
    if (*answer) return found_(**answer);
    if (is_failing) log::info("what may give notice answers again");
    is_failing = false;
  } while (pause());
}

}  // namespace perdura::worker::node
