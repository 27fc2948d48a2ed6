// Lines of the log, to be waited for.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "actors/base/log.hpp"

namespace perdura::test {

class captured_log {
 public:
  captured_log() {
    {
      const std::lock_guard lock(mutex());
      lines().clear();
    }
    log::set_sink(
        [](log::level, std::string_view line) {
          const std::lock_guard lock(mutex());
          lines().emplace_back(line);
        },
        log::level::debug);
  }
  captured_log(const captured_log&) = delete;
  captured_log& operator=(const captured_log&) = delete;
  ~captured_log() { log::set_sink(nullptr, log::level::error); }

  static bool says(const std::string& words) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < end) {
      {
        const std::lock_guard lock(mutex());
        for (const auto& line : lines())
          if (line.find(words) != std::string::npos) return true;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  static std::string text() {
    const std::lock_guard lock(mutex());
    std::string all;
    for (const auto& line : lines()) all += line + "\n";
    return all;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex m;
    return m;
  }
  static std::vector<std::string>& lines() {
    static std::vector<std::string> l;
    return l;
  }
};

}  // namespace perdura::test
