#include "worker/spans.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "actors/base/log.hpp"

namespace perdura::worker {

namespace {

double microseconds(spans::time_point t) {
  return std::chrono::duration<double, std::micro>(t.time_since_epoch()).count();
}

}  // namespace

std::shared_ptr<spans> spans::open(const std::string& folder, const std::string& name) {
  if (folder.empty()) return nullptr;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  auto file = name + "-" + std::to_string(::getpid()) + ".json";
  std::replace(file.begin(), file.end(), '/', '-');
  const auto path = folder + "/" + file;
  auto* opened = std::fopen(path.c_str(), "w");
  if (opened == nullptr) {
    log::warn("cannot write spans to " + path + "; none are kept");
    return nullptr;
  }
  // The closing bracket may lack: a worker ends when it is killed.
  std::fprintf(
      opened,
      "[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}},\n"
      "{\"ph\":\"M\",\"pid\":%d,\"tid\":1,\"name\":\"thread_name\",\"args\":{\"name\":\"lane\"}},\n"
      "{\"ph\":\"M\",\"pid\":%d,\"tid\":2,\"name\":\"thread_name\",\"args\":{\"name\":\"gathering\"}},\n",
      ::getpid(), name.c_str(), ::getpid(), ::getpid());
  return std::shared_ptr<spans>(new spans(opened));
}

spans::~spans() { std::fclose(file_); }

void spans::add(track where, const std::string& what, std::uint64_t step, time_point begin, time_point end) {
  const std::lock_guard lock(mutex_);
  std::fprintf(file_,
               "{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.1f,\"dur\":%.1f,\"name\":\"%s\",\"args\":{"
               "\"step\":%llu}},\n",
               ::getpid(), static_cast<int>(where), microseconds(begin),
               microseconds(end) - microseconds(begin), what.c_str(), static_cast<unsigned long long>(step));
  std::fflush(file_);
}

}  // namespace perdura::worker
