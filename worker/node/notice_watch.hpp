// Watches what may say that this machine goes: a notice file, a metadata service. Each on a thread of its
// own, so that a service that does not answer holds up nothing.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "actors/base/node_config.hpp"
#include "worker/node/metadata.hpp"

namespace perdura::worker::node {

class notice_watch {
 public:
  // `found` is called on the watcher's thread, once for each of the two at most.
  notice_watch(preemption_config config, std::function<void(const notice&)> found);
  ~notice_watch();
  notice_watch(const notice_watch&) = delete;
  notice_watch& operator=(const notice_watch&) = delete;

 private:
  using question = std::function<result<std::optional<notice>>()>;
  void watch(const question& ask);
  bool pause();  // false: it ends

  const preemption_config config_;
  const std::function<void(const notice&)> found_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  http_client http_;
  const std::unique_ptr<metadata_service> service_;
  std::vector<std::thread> threads_;
};

}  // namespace perdura::worker::node
