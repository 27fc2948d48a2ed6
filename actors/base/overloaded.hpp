// A visitor of a std::variant out of one lambda for each alternative.
#pragma once

namespace perdura {

template <class... F>
struct overloaded : F... {
  using F::operator()...;
};
template <class... F>
overloaded(F...) -> overloaded<F...>;

}  // namespace perdura
