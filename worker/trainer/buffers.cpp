#include "worker/trainer/buffers.hpp"

#include <new>
#include <utility>

namespace perdura::worker {

std::shared_ptr<float> allocate_floats(std::size_t count) {
  constexpr auto alignment = std::align_val_t{buffer_alignment};
  auto* memory = static_cast<float*>(::operator new(count * sizeof(float), alignment));
  return {memory, [alignment](float* p) { ::operator delete(p, alignment); }};
}

blob share(std::shared_ptr<float> buffer, std::size_t count) {
  const auto* bytes = reinterpret_cast<const std::byte*>(buffer.get());
  return {std::move(buffer), bytes, count * sizeof(float)};
}

buffer_pool::buffer_pool(std::size_t floats, std::size_t kept_max) : floats_(floats), kept_max_(kept_max) {
  idle_.reserve(kept_max);
}

std::shared_ptr<buffer_pool> buffer_pool::make(std::size_t floats, std::size_t kept_max) {
  return std::shared_ptr<buffer_pool>(new buffer_pool(floats, kept_max));
}

std::shared_ptr<float> buffer_pool::take() {
  std::shared_ptr<float> buffer;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      buffer = std::move(idle_.back());
      idle_.pop_back();
    } else {
      ++made_;
    }
  }
  if (!buffer) buffer = allocate_floats(floats_);
  float* memory = buffer.get();
  return {memory, [pool = shared_from_this(), buffer = std::move(buffer)](float*) mutable {
            pool->give_back(std::move(buffer));
          }};
}

void buffer_pool::give_back(std::shared_ptr<float> buffer) {
  const std::lock_guard lock(mutex_);
  if (idle_.size() < kept_max_)
    idle_.push_back(std::move(buffer));
  else
    --made_;
}

std::uint64_t buffer_pool::bytes() const {
  const std::lock_guard lock(mutex_);
  return made_ * floats_ * sizeof(float);
}

std::size_t buffer_pool::idle() const {
  const std::lock_guard lock(mutex_);
  return idle_.size();
}

}  // namespace perdura::worker
