// Fixes what the bits of a CPU lane depend on beside the code: one thread, instruction sets of the libraries,
// rounding. The numeric class (trainer.hpp) tells whether it sufficed.
#pragma once

namespace perdura::worker {

// Call before anything of LibTorch is used; later calls change nothing. Sets environment variables: no other
// thread may read the environment meanwhile.
void pin_numerics();

}  // namespace perdura::worker
