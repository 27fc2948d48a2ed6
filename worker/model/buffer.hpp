// Floats that start on a cache line; they grow, and are never shrunk or zeroed.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace perdura::worker {

class buffer {
 public:
  // What was in it is lost when it grows.
  void reserve(std::size_t count) {
    if (count <= size_) return;
    data_.reset(static_cast<float*>(::operator new(count * sizeof(float), line)));
    size_ = count;
  }
  void reserve(std::int64_t count) { reserve(static_cast<std::size_t>(count)); }
  float* data() { return data_.get(); }
  operator float*() { return data_.get(); }
  operator const float*() const { return data_.get(); }

 private:
  static constexpr std::align_val_t line{64};
  struct release {
    void operator()(float* p) const { ::operator delete(p, line); }
  };
  std::unique_ptr<float, release> data_;
  std::size_t size_ = 0;
};

}  // namespace perdura::worker
