// What a worker did when, as trace events that Perfetto and chrome://tracing read: one file a life, a line an
// event. Off unless the environment names a folder (PERDURA_SPANS); see docs/operations.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>

namespace perdura::worker {

class spans {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  // Threads of the picture: what computes, and what is under way beside it.
  enum class track : unsigned char { lane = 1, gather = 2 };

  // Null where `folder` is empty or cannot be written.
  static std::shared_ptr<spans> open(const std::string& folder, const std::string& name);
  ~spans();
  spans(const spans&) = delete;
  spans& operator=(const spans&) = delete;

  static time_point now() { return std::chrono::steady_clock::now(); }
  // From any thread. `step` is written along.
  void add(track where, const std::string& what, std::uint64_t step, time_point begin, time_point end);

 private:
  explicit spans(std::FILE* file) : file_(file) {}

  std::mutex mutex_;
  std::FILE* file_;
};

}  // namespace perdura::worker
