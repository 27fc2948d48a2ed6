#pragma once

#include "actors/base/ids.hpp"

namespace perdura::runtime {

// A new life's 128 bits from the kernel; never none.
incarnation random_incarnation();

}  // namespace perdura::runtime
