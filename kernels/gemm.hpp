// Matrix products in single precision, on one thread. Every element of the result is one chain of fused
// multiply-adds in ascending depth, so its bits depend neither on the other rows and columns (a row is the
// same in any batch) nor on how the product is cut for the caches, nor on the width of the vector unit.
//
// Operands are taken as they are, or rounded to bfloat16 first; sums are in single precision either way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/bf16.hpp"

namespace perdura::kernels {

// Element (i, j) at data[i * row + j * column]; one of the strides is 1.
template <class Number>
struct matrix_of {
  const Number* data;
  std::ptrdiff_t row;
  std::ptrdiff_t column;
};
using matrix = matrix_of<float>;
using bf16_matrix = matrix_of<bf16>;

template <class Number>
matrix_of<Number> row_major(const Number* data, std::ptrdiff_t stride) {
  return {data, stride, 1};
}
template <class Number>
matrix_of<Number> transposed(const Number* data, std::ptrdiff_t stride) {
  return {data, 1, stride};
}

struct gemm_size {
  std::int64_t rows, columns, depth;
};

enum class operand_precision : std::uint8_t { fp32, bf16 };

// What the chains start from.
enum class gemm_start : std::uint8_t { zero, bias, result };

// Floats of scratch memory that products of up to this many columns and this depth need.
std::size_t gemm_scratch(std::int64_t columns, std::int64_t depth);

// c[rows, columns] = start + a[rows, depth] b[depth, columns]; `bias` is one row, read if start is bias.
void gemm(const gemm_size& size, const matrix& a, const matrix& b, float* c, std::ptrdiff_t c_row,
          gemm_start start, const float* bias, float* scratch,
          operand_precision precision = operand_precision::fp32);
// The same with b in bfloat16; a is rounded to it.
void gemm(const gemm_size& size, const matrix& a, const bf16_matrix& b, float* c, std::ptrdiff_t c_row,
          gemm_start start, const float* bias, float* scratch);

}  // namespace perdura::kernels
