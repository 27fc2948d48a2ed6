// Canonical sums: in fp32 along the binary tree over the slots, so that they do not depend on who held which
// block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdura::kernels {

// More slots than this in a step are refused: the tree's pending sums lie on the stack.
inline constexpr std::uint32_t slots_log2_max = 16;

// The sum over an aligned block of slots, on one tile.
struct reduce_input {
  const float* values{};
  std::uint32_t slots{};  // a power of two
};

// Whether the inputs are nodes of the binary tree that complete it: taken in slot order, equal neighbours
// merge until one node of all slots is left.
bool completes_tree(std::span<const reduce_input> inputs);

// out = left + right; out may be either.
void add(std::span<const float> left, std::span<const float> right, std::span<float> out);

// Finishes the tree, scales, and gives the sum of squares of what it wrote (not finite iff an element is
// not). Precondition: completes_tree(inputs); each input has out.size() values.
double reduce(std::span<const reduce_input> inputs, float scale, std::span<float> out);

// Sum of squares in fp64: 16 lanes (element i to lane i mod 16), then the lanes along their binary tree.
double norm2(std::span<const float> values);

}  // namespace perdura::kernels
