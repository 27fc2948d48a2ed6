#include "kernels/gemm.hpp"

#include <algorithm>
#include <type_traits>

#include "kernels/simd.hpp"

namespace perdura::kernels {
namespace {

using namespace simd;

constexpr std::int64_t tile_rows = 6;  // 6 x 16 sums fill 12 of the 16 vector registers
constexpr std::int64_t tile_columns = 16;
constexpr std::int64_t depth_block = 256;  // a panel of b (16 KiB) stays in the first-level cache
constexpr std::int64_t row_block = 96;     // rows of a (96 KiB) stay in the second

// Where a tile of c goes, and what its sums start from (null: zero).
struct target {
  float* c;
  std::ptrdiff_t c_row;
  const float* start;
  std::ptrdiff_t start_row;
};

// One tile of c in registers: R rows of 8 V columns. a(i, p) is at a[i * a_row + p * a_depth]; b is a packed
// panel.
template <int R, int V>
PERDURA_INLINE void tile(std::int64_t depth, const float* a, std::ptrdiff_t a_row, std::ptrdiff_t a_depth,
                         const float* b, const target& to) {
  f8 sums[R][V];
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < V; ++j)
      sums[i][j] = to.start ? load(to.start + i * to.start_row + j * lanes) : zero();
  }
  for (std::int64_t p = 0; p < depth; ++p) {
    f8 right[V];
    for (int j = 0; j < V; ++j) right[j] = load(b + j * lanes);
    for (int i = 0; i < R; ++i) {
      const f8 left = splat(a[i * a_row]);
      for (int j = 0; j < V; ++j) sums[i][j] = fma(left, right[j], sums[i][j]);
    }
    a += a_depth;
    b += V * lanes;
  }
  for (int i = 0; i < R; ++i) {
    for (int j = 0; j < V; ++j) store(to.c + i * to.c_row + j * lanes, sums[i][j]);
  }
}

// The same for a number of rows known at run time. Packed rows of a lie as [depth][6].
template <int V, bool packed>
void tile_of(std::int64_t rows, std::int64_t depth, const float* a, std::ptrdiff_t a_row, const float* b,
             const target& to) {
  const std::ptrdiff_t row = packed ? 1 : a_row;
  constexpr std::ptrdiff_t step = packed ? tile_rows : 1;
  switch (rows) {
    case 6: return tile<6, V>(depth, a, row, step, b, to);
    case 5: return tile<5, V>(depth, a, row, step, b, to);
    case 4: return tile<4, V>(depth, a, row, step, b, to);
    case 3: return tile<3, V>(depth, a, row, step, b, to);
    case 2: return tile<2, V>(depth, a, row, step, b, to);
    default: return tile<1, V>(depth, a, row, step, b, to);
  }
}

// As many rows as a tile takes of those left; 7 and 8 are cut in halves, as tiles of 1 and 2 rows are slow.
std::int64_t next_rows(std::int64_t left) { return left == 7 || left == 8 ? 4 : std::min(left, tile_rows); }

constexpr std::int64_t panel_width(std::int64_t columns) { return columns > lanes ? tile_columns : lanes; }

// Numbers as an operand has them: as they lie, or rounded to bfloat16 if they are not yet.
template <bool rounded, class Number>
PERDURA_INLINE f8 eight_of(const Number* p) {
  if constexpr (rounded && std::is_same_v<Number, float>)
    return rounded_to_bf16(load(p));
  else
    return load(p);
}
template <bool rounded>
PERDURA_INLINE float one_of(float x) {
  return rounded ? float_of(bf16_of(x)) : x;
}
template <bool rounded>
PERDURA_INLINE float one_of(bf16 x) {
  return float_of(x);
}

// A panel of b: [depth][width], zeros where b has no more columns.
template <bool rounded, class Number>
void pack_panel(const matrix_of<Number>& b, std::int64_t depth, std::int64_t columns, float* panel) {
  const std::int64_t width = panel_width(columns);
  std::int64_t p = 0;
  if (columns == width && b.column == 1) {
    for (; p < depth; ++p) {
      for (std::int64_t j = 0; j < width; j += lanes)
        store(panel + p * width + j, eight_of<rounded>(b.data + p * b.row + j));
    }
  } else if (columns == width && b.row == 1) {
    for (; p + lanes <= depth; p += lanes) {
      for (std::int64_t j = 0; j < width; j += lanes) {
        f8 square[lanes];
        for (int i = 0; i < lanes; ++i) square[i] = eight_of<rounded>(b.data + p + (j + i) * b.column);
        transpose(square);
        for (int i = 0; i < lanes; ++i) store(panel + (p + i) * width + j, square[i]);
      }
    }
  }
  for (; p < depth; ++p) {
    for (std::int64_t j = 0; j < width; ++j)
      panel[p * width + j] = j < columns ? one_of<rounded>(b.data[p * b.row + j * b.column]) : 0.0F;
  }
}

// All panels of b for one block of depth. Whole panels are read row by row, as the memory lies.
template <bool rounded, class Number>
void pack_panels(const matrix_of<Number>& b, std::int64_t depth, std::int64_t columns, float* panels) {
  std::int64_t j = 0;
  if (b.column == 1) {
    const std::int64_t whole = columns / tile_columns * tile_columns;
    for (std::int64_t p = 0; p < depth; ++p) {
      for (j = 0; j < whole; j += tile_columns) {
        float* to = panels + j * depth + p * tile_columns;
        store(to, eight_of<rounded>(b.data + p * b.row + j));
        store(to + lanes, eight_of<rounded>(b.data + p * b.row + j + lanes));
      }
    }
    j = whole;
  }
  for (; j < columns; j += tile_columns) {
    pack_panel<rounded>(matrix_of<Number>{b.data + j * b.column, b.row, b.column}, depth,
                        std::min(tile_columns, columns - j), panels + j * depth);
  }
}

// Rows of a tile whose elements of equal depth are adjacent, as [depth][6]. `spare`: eight may be read and
// written at once, what is too much is overwritten by the next depth or lies in the scratch memory's end.
template <bool rounded>
void pack_rows(const matrix& a, std::int64_t rows, std::int64_t depth, bool spare, float* packed) {
  for (std::int64_t p = 0; p < depth; ++p, packed += tile_rows) {
    const float* from = a.data + p * a.column;
    if (spare) {
      store(packed, eight_of<rounded>(from));
    } else {
      for (std::int64_t i = 0; i < rows; ++i) packed[i] = one_of<rounded>(from[i * a.row]);
    }
  }
}

// Rows as they lie, rounded: [rows][depth].
void round_rows(const matrix& a, std::int64_t rows, std::int64_t depth, float* rounded) {
  for (std::int64_t i = 0; i < rows; ++i, rounded += depth) {
    const float* from = a.data + i * a.row;
    std::int64_t p = 0;
    for (; p + lanes <= depth; p += lanes) store(rounded + p, eight_of<true>(from + p));
    for (; p < depth; ++p) rounded[p] = one_of<true>(from[p]);
  }
}

// A tile with fewer columns than its panel goes through memory of full width.
template <bool packed>
void narrow_tile(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                 std::ptrdiff_t a_row, const float* b, const target& to) {
  float full[tile_rows * tile_columns] = {};
  const std::int64_t width = panel_width(columns);
  if (to.start) {
    for (std::int64_t i = 0; i < rows; ++i)
      std::copy_n(to.start + i * to.start_row, columns, full + i * tile_columns);
  }
  const target within{full, tile_columns, full, tile_columns};
  if (width == tile_columns)
    tile_of<2, packed>(rows, depth, a, a_row, b, within);
  else
    tile_of<1, packed>(rows, depth, a, a_row, b, within);
  for (std::int64_t i = 0; i < rows; ++i) std::copy_n(full + i * tile_columns, columns, to.c + i * to.c_row);
}

// All tiles of a block of rows with one panel of b.
template <bool packed>
void panel_product(std::int64_t rows, std::int64_t columns, std::int64_t depth, const float* a,
                   std::ptrdiff_t a_row, const float* b, target to) {
  for (std::int64_t i = 0, n = 0; i < rows; i += n) {
    n = next_rows(rows - i);
    if (columns == tile_columns)
      tile_of<2, packed>(n, depth, a, a_row, b, to);
    else if (columns == lanes)
      tile_of<1, packed>(n, depth, a, a_row, b, to);
    else
      narrow_tile<packed>(n, columns, depth, a, a_row, b, to);
    a += packed ? tile_rows * depth : n * a_row;
    to.c += n * to.c_row;
    if (to.start) to.start += n * to.start_row;
  }
}

// One block of rows of a with all panels of b.
template <bool rounded>
void block_product(const gemm_size& size, const matrix& a, std::int64_t left_below, const float* panels,
                   const target& to, float* left) {
  const std::int64_t depth = size.depth;
  const bool pack = a.column != 1;
  for (std::int64_t i = 0, n = 0, t = 0; pack && i < size.rows; i += n, ++t) {
    n = next_rows(size.rows - i);
    pack_rows<rounded>({a.data + i * a.row, a.row, a.column}, n, depth,
                       a.row == 1 && i + lanes <= size.rows + left_below, left + t * tile_rows * depth);
  }
  if (rounded && !pack) round_rows(a, size.rows, depth, left);
  for (std::int64_t j = 0; j < size.columns; j += tile_columns) {
    const target into{to.c + j, to.c_row, to.start ? to.start + j : nullptr, to.start_row};
    const std::int64_t columns = std::min(tile_columns, size.columns - j);
    if (pack)
      panel_product<true>(size.rows, columns, depth, left, 1, panels + j * depth, into);
    else if (rounded)
      panel_product<false>(size.rows, columns, depth, left, depth, panels + j * depth, into);
    else
      panel_product<false>(size.rows, columns, depth, a.data, a.row, panels + j * depth, into);
  }
}

template <bool rounded, class Number>
void product(const gemm_size& size, const matrix& a, const matrix_of<Number>& b, float* c,
             std::ptrdiff_t c_row, gemm_start start, const float* bias, float* scratch) {
  float* const left = scratch;
  float* const right = scratch + row_block * depth_block + lanes;
  for (std::int64_t p0 = 0; p0 < size.depth; p0 += depth_block) {
    const std::int64_t depth = std::min(depth_block, size.depth - p0);
    pack_panels<rounded>(matrix_of<Number>{b.data + p0 * b.row, b.row, b.column}, depth, size.columns, right);
    const bool from_result = p0 > 0 || start == gemm_start::result;
    for (std::int64_t i0 = 0; i0 < size.rows; i0 += row_block) {
      const std::int64_t rows = std::min(row_block, size.rows - i0);
      float* to = c + i0 * c_row;
      const float* first = from_result ? to : start == gemm_start::bias ? bias : nullptr;
      block_product<rounded>({rows, size.columns, depth},
                             {a.data + i0 * a.row + p0 * a.column, a.row, a.column}, size.rows - i0 - rows,
                             right, {to, c_row, first, from_result ? c_row : 0}, left);
    }
  }
}

}  // namespace

std::size_t gemm_scratch(std::int64_t columns, std::int64_t depth) {
  const std::int64_t panels = (columns + tile_columns - 1) / tile_columns;
  return static_cast<std::size_t>(panels * tile_columns * std::min(depth, depth_block) +
                                  row_block * depth_block + lanes);
}

void gemm(const gemm_size& size, const matrix& a, const matrix& b, float* c, std::ptrdiff_t c_row,
          gemm_start start, const float* bias, float* scratch, operand_precision precision) {
  if (precision == operand_precision::bf16)
    product<true>(size, a, b, c, c_row, start, bias, scratch);
  else
    product<false>(size, a, b, c, c_row, start, bias, scratch);
}

void gemm(const gemm_size& size, const matrix& a, const bf16_matrix& b, float* c, std::ptrdiff_t c_row,
          gemm_start start, const float* bias, float* scratch) {
  product<true>(size, a, b, c, c_row, start, bias, scratch);
}

}  // namespace perdura::kernels
