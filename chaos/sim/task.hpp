// Something to do at a moment of virtual time. Blocks are of one size and used again: a run makes millions.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace perdura::sim {

class task {
 public:
  task() = default;
  template <class F>
  requires(!std::is_same_v<std::decay_t<F>, task>) task(F f) : block_(take()) {
    static_assert(sizeof(F) <= room, "make the block larger, or carry less");
    ::new (static_cast<void*>(block_->bytes)) F(std::move(f));
    block_->call = [](block& b) { (*std::launder(reinterpret_cast<F*>(b.bytes)))(); };
    block_->destroy = [](block& b) { std::launder(reinterpret_cast<F*>(b.bytes))->~F(); };
  }
  task(task&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  task& operator=(task&& other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~task() {
    if (!block_) return;
    block_->destroy(*block_);
    pool().emplace_back(block_);
  }
  void operator()() { block_->call(*block_); }

 private:
  static constexpr std::size_t room = 448;
  struct block {
    void (*call)(block&);
    void (*destroy)(block&);
    alignas(std::max_align_t) std::byte bytes[room];
  };

  static std::vector<std::unique_ptr<block>>& pool() {
    static thread_local std::vector<std::unique_ptr<block>> unused;
    return unused;
  }
  static block* take() {
    auto& unused = pool();
    if (unused.empty()) return new block;
    auto* b = unused.back().release();
    unused.pop_back();
    return b;
  }

  block* block_ = nullptr;
};

}  // namespace perdura::sim
