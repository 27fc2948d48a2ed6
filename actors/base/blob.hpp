// Bytes that are shared, never copied and never changed: a slice of a gradient, of a tile, of a frame.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace perdura {

class blob {
 public:
  blob() = default;
  // `owner` keeps the bytes alive.
  blob(std::shared_ptr<const void> owner, const std::byte* data, std::size_t size)
      : owner_(std::move(owner)), data_(data), size_(size) {}

  static blob copy_of(std::span<const std::byte> bytes) {
    auto owner = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
    const std::byte* data = owner->data();
    return {std::move(owner), data, bytes.size()};
  }
  static blob take(std::vector<std::byte> bytes) {
    auto owner = std::make_shared<std::vector<std::byte>>(std::move(bytes));
    const std::byte* data = owner->data();
    const std::size_t size = owner->size();
    return {std::move(owner), data, size};
  }

  const std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  friend bool operator==(const blob& a, const blob& b) {
    return a.size_ == b.size_ && (a.size_ == 0 || std::memcmp(a.data_, b.data_, a.size_) == 0);
  }

 private:
  std::shared_ptr<const void> owner_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace perdura
