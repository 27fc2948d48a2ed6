// Changes good files a little, the same for the same seed: bytes, numbers (binary and in text) that lie at
// edges, pieces left out, doubled, moved or taken from another file.
#pragma once

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <random>
#include <string>

#include "tests/fuzz/targets.hpp"

namespace perdura::fuzz {

class mutator {
 public:
  explicit mutator(std::uint64_t seed) : random_(seed) {}

  input_bytes next(const std::vector<input_bytes>& from) {
    input_bytes bytes = from[below(from.size())];
    for (std::size_t n = 1 + below(4); n > 0; --n) change(bytes, from[below(from.size())]);
    return bytes;
  }

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : static_cast<std::size_t>(random_() % n); }

  void change(input_bytes& bytes, const input_bytes& other) {
    if (bytes.size() < 2) return;
    const std::size_t at = 1 + below(bytes.size() - 1);  // the first byte says how to read the others
    const std::size_t size = std::min(bytes.size() - at, std::size_t{1} << below(7));
    const auto here = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto end = here + static_cast<std::ptrdiff_t>(size);
    switch (below(8)) {
      case 0: bytes[at] ^= static_cast<std::uint8_t>(1U << below(8)); return;
      case 1: bytes[at] = static_cast<std::uint8_t>(random_()); return;
      case 2: bytes.erase(here, end); return;
      case 3: {
        const input_bytes twice(here, end);
        bytes.insert(here, twice.begin(), twice.end());
        return;
      }
      case 4: bytes.resize(at); return;
      case 5: put_number(bytes, at); return;
      case 6: put_digits(bytes, at); return;
      default: {
        const std::size_t there = below(other.size());
        const std::size_t n = std::min(size, other.size() - there);
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(there), std::min(n, bytes.size() - at), here);
      }
    }
  }

  void put_number(input_bytes& bytes, std::size_t at) {
    static constexpr std::array<std::uint64_t, 8> edges{
        0, 1, 0x7f, 0xff, 0x7fffffff, 0xffffffff, 0x7fffffffffffffff, 0xffffffffffffffff};
    const std::uint64_t n = edges[below(edges.size())] + below(3) - 1;
    std::memcpy(bytes.data() + at, &n, std::min(std::size_t{1} << below(4), bytes.size() - at));
  }

  // The next number in a text becomes another one.
  void put_digits(input_bytes& bytes, std::size_t at) {
    static const std::array<std::string, 10> edges{"0",
                                                   "1",
                                                   "-1",
                                                   "4294967296",
                                                   "9223372036854775807",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "1e3",
                                                   "0.5",
                                                   "[]"};
    const auto is_digit = [](std::uint8_t c) { return std::isdigit(c) != 0; };
    const auto first = std::find_if(bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.end(), is_digit);
    const auto last = std::find_if_not(first, bytes.end(), is_digit);
    if (first == bytes.end()) return;
    const auto& text = edges[below(edges.size())];
    bytes.insert(bytes.erase(first, last), text.begin(), text.end());
  }

  std::mt19937_64 random_;
};

}  // namespace perdura::fuzz
