// libFuzzer's entry; PERDURA_FUZZ_TARGET is the target's function.
#include "tests/fuzz/targets.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdura::fuzz::PERDURA_FUZZ_TARGET({data, size});
  return 0;
}
