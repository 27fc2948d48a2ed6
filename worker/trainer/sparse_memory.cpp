#include "worker/trainer/sparse_memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <new>

#include "actors/base/check.hpp"

#ifdef __SANITIZE_ADDRESS__
extern "C" void __asan_poison_memory_region(const volatile void* data, std::size_t size);
extern "C" void __asan_unpoison_memory_region(const volatile void* data, std::size_t size);
#endif

namespace perdura::worker {
namespace {

std::size_t page_bytes() {
  static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

// Under the address sanitizer it is an error to touch what is not in use.
void forbid([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __asan_poison_memory_region(data, size);
#endif
}
void allow([[maybe_unused]] std::byte* data, [[maybe_unused]] std::size_t size) {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(data, size);
#endif
}

std::size_t pages_of(std::size_t bytes) { return (bytes + page_bytes() - 1) / page_bytes(); }

}  // namespace

sparse_memory::sparse_memory(std::size_t bytes)
    : size_(bytes),
      mapped_(std::max<std::size_t>(pages_of(bytes), 1) * page_bytes()),
      users_(pages_of(bytes)) {
  void* at =
      ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  // A huge page would be there as a whole for the sake of one tile.
  ::madvise(at, mapped_, MADV_NOHUGEPAGE);
  data_ = static_cast<std::byte*>(at);
  forbid(data_, mapped_);
}

sparse_memory::~sparse_memory() {
  allow(data_, mapped_);
  ::munmap(data_, mapped_);
}

void sparse_memory::use(std::size_t first, std::size_t size) {
  PERDURA_CHECK(first <= size_ && size <= size_ - first, "a range outside of the memory");
  if (size == 0) return;
  for (std::size_t p = first / page_bytes(); p <= (first + size - 1) / page_bytes(); ++p) {
    PERDURA_CHECK(users_[p] < std::numeric_limits<std::uint16_t>::max(), "too many ranges in one page");
    if (users_[p]++ == 0) ++used_pages_;
  }
  allow(data_ + first, size);
}

void sparse_memory::give_back(std::size_t first, std::size_t size) {
  PERDURA_CHECK(first <= size_ && size <= size_ - first, "a range outside of the memory");
  if (size == 0) return;
  forbid(data_ + first, size);
  const std::size_t end = (first + size - 1) / page_bytes() + 1;
  std::size_t free_from = end, free_to = end;  // only the pages at both ends may have other users
  for (std::size_t p = first / page_bytes(); p < end; ++p) {
    PERDURA_CHECK(users_[p] > 0, "a range is given back that is not in use");
    if (--users_[p] > 0) continue;
    --used_pages_;
    if (free_from == end) free_from = p;
    free_to = p + 1;
  }
  if (free_from < end)
    ::madvise(data_ + free_from * page_bytes(), (free_to - free_from) * page_bytes(), MADV_DONTNEED);
}

std::size_t sparse_memory::used_bytes() const { return used_pages_ * page_bytes(); }

std::size_t sparse_memory::resident_bytes() const {
  std::vector<unsigned char> pages(mapped_ / page_bytes());
  PERDURA_CHECK(::mincore(data_, mapped_, pages.data()) == 0, "the kernel tells which pages are resident");
  std::size_t resident = 0;
  for (const unsigned char p : pages) resident += p & 1U;
  return resident * page_bytes();
}

}  // namespace perdura::worker
