#include "worker/trainer/pin.hpp"

#include <ATen/Parallel.h>

#include <cfenv>
#include <cstdlib>

namespace perdura::worker {

void pin_numerics() {
  static const bool done = [] {
    // Libraries read these at their first use. A machine with AVX-512 then gives the bits of one without.
    constexpr int keep_what_the_user_set = 0;
    setenv("ATEN_CPU_CAPABILITY", "avx2", keep_what_the_user_set);
    setenv("ONEDNN_MAX_CPU_ISA", "AVX2", keep_what_the_user_set);
    setenv("MKL_ENABLE_INSTRUCTIONS", "AVX2", keep_what_the_user_set);
    setenv("MKL_CBWR", "AVX2", keep_what_the_user_set);
    setenv("MKL_NUM_THREADS", "1", keep_what_the_user_set);
    setenv("OMP_NUM_THREADS", "1", keep_what_the_user_set);
    at::set_num_threads(1);
    at::set_num_interop_threads(1);
    // Rounding to nearest and denormal numbers, whatever a library loaded before has set.
    std::fesetenv(FE_DFL_ENV);
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace perdura::worker
