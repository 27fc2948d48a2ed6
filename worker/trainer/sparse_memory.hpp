// Bytes in one range of addresses, of which only what is in use takes memory: what is flat to the model is
// sharded to the machine. Anonymous pages here; on an accelerator its virtual memory management does the
// same (cuMemAddressReserve, cuMemMap).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perdura::worker {

class sparse_memory {
 public:
  // Throws bad_alloc where the address space has no room.
  explicit sparse_memory(std::size_t bytes);
  ~sparse_memory();
  sparse_memory(const sparse_memory&) = delete;
  sparse_memory& operator=(const sparse_memory&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

  // A range must not be touched unless it is in use. Its bytes are then whatever they happen to be. Ranges in
  // use do not overlap.
  void use(std::size_t first, std::size_t size);
  // Gives back the pages that no other range in use shares.
  void give_back(std::size_t first, std::size_t size);

  std::size_t used_bytes() const;      // of whole pages
  std::size_t resident_bytes() const;  // as the kernel counts them

 private:
  std::size_t size_;
  std::size_t mapped_;
  std::byte* data_;
  std::vector<std::uint16_t> users_;  // of each page
  std::size_t used_pages_ = 0;
};

}  // namespace perdura::worker
