// Float buffers of one size, 64-byte aligned, used again and again: a training step allocates nothing. A
// buffer comes back when the last blob that shares it is gone, on whatever thread that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/base/blob.hpp"

namespace perdura::worker {

inline constexpr std::size_t buffer_alignment = 64;

// Uninitialised.
std::shared_ptr<float> allocate_floats(std::size_t count);
// The bytes of `count` floats, kept alive by `buffer`.
blob share(std::shared_ptr<float> buffer, std::size_t count);

class buffer_pool : public std::enable_shared_from_this<buffer_pool> {
 public:
  // At most `kept_max` idle buffers are held back; what comes beyond is freed.
  static std::shared_ptr<buffer_pool> make(std::size_t floats, std::size_t kept_max);

  std::shared_ptr<float> take();
  std::size_t idle() const;
  // Of all buffers, idle or not.
  std::uint64_t bytes() const;

 private:
  buffer_pool(std::size_t floats, std::size_t kept_max);
  void give_back(std::shared_ptr<float> buffer);

  const std::size_t floats_;
  const std::size_t kept_max_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<float>> idle_;
  std::size_t made_ = 0;  // and not freed
};

}  // namespace perdura::worker
