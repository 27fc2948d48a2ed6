#include "kernels/loops.hpp"

namespace perdura::kernels {

const backend& scalar_backend() {
  static constexpr backend table = make_backend("scalar");
  return table;
}

}  // namespace perdura::kernels
