// Compiled with -mavx2 -mfma: reached only where the CPU has both.
#include "kernels/loops.hpp"

namespace perdura::kernels {

const backend& avx2_table();

const backend& avx2_table() {
  static constexpr backend table = make_backend("avx2");
  return table;
}

}  // namespace perdura::kernels
