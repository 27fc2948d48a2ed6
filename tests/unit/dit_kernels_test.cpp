// Compiled twice: over the library, and over the kernels' portable loops. Both must give the same bits.
#include <doctest/doctest.h>

#include <cmath>
#include <span>
#include <vector>

#include "kernels/dit_attention.hpp"
#include "kernels/dit_norm.hpp"
#include "kernels/dit_pointwise.hpp"
#include "kernels/gemm.hpp"
#include "kernels/hash.hpp"
#include "kernels/philox.hpp"

using namespace perdura::kernels;

namespace {

using floats = std::vector<float>;

floats normals(std::int64_t count, std::uint32_t which, float deviation = 1.0F) {
  floats v(static_cast<std::size_t>(count));
  fill_normal({3, 0, which, random_stream::canary}, v);
  for (float& x : v) x *= deviation;
  return v;
}

// c = start + a b, as gemm promises it: one chain of fused multiply-adds for each element.
floats product(const gemm_size& size, const matrix& a, const matrix& b, const floats& start,
               std::int64_t start_row) {
  floats c(static_cast<std::size_t>(size.rows * size.columns));
  for (std::int64_t i = 0; i < size.rows; ++i) {
    for (std::int64_t j = 0; j < size.columns; ++j) {
      float sum = start.empty() ? 0.0F : start[static_cast<std::size_t>(i * start_row + j)];
      for (std::int64_t p = 0; p < size.depth; ++p) {
        sum = std::fma(a.data[i * a.row + p * a.column], b.data[p * b.row + j * b.column], sum);
      }
      c[static_cast<std::size_t>(i * size.columns + j)] = sum;
    }
  }
  return c;
}

const gemm_size gemm_sizes[] = {{1, 1, 1},    {6, 16, 8},    {7, 17, 9},     {8, 8, 300},  {13, 49, 64},
                                {49, 64, 49}, {97, 33, 257}, {100, 24, 130}, {95, 5, 600}, {193, 40, 16}};

double relative_error(const floats& ours, const std::vector<double>& theirs) {
  REQUIRE(ours.size() == theirs.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    error += std::pow(static_cast<double>(ours[i]) - theirs[i], 2);
    size += std::pow(theirs[i], 2);
  }
  return std::sqrt(error / size);
}

double gelu_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double silu_of(double x) { return x / (1 + std::exp(-x)); }
template <class F>
double slope(F f, double x) {
  return (f(x + 1e-6) - f(x - 1e-6)) / 2e-6;
}

const attention_size attention{2, 11, 3, 8};

}  // namespace

TEST_CASE("a matrix product is one chain of fused multiply-adds for each element, in every layout") {
  for (const gemm_size& size : gemm_sizes) {
    CAPTURE(size.rows);
    CAPTURE(size.columns);
    CAPTURE(size.depth);
    const floats a = normals(size.rows * size.depth, 1), b = normals(size.depth * size.columns, 2);
    const floats bias = normals(size.columns, 3), before = normals(size.rows * size.columns, 4);
    floats scratch(gemm_scratch(size.columns, size.depth));
    for (const matrix& left : {row_major(a.data(), size.depth), transposed(a.data(), size.rows)}) {
      for (const matrix& right : {row_major(b.data(), size.columns), transposed(b.data(), size.depth)}) {
        floats c = before;
        gemm(size, left, right, c.data(), size.columns, gemm_start::zero, nullptr, scratch.data());
        CHECK(c == product(size, left, right, {}, 0));
        gemm(size, left, right, c.data(), size.columns, gemm_start::bias, bias.data(), scratch.data());
        CHECK(c == product(size, left, right, bias, 0));
        c = before;
        gemm(size, left, right, c.data(), size.columns, gemm_start::result, nullptr, scratch.data());
        CHECK(c == product(size, left, right, before, size.columns));
      }
    }
  }
}

TEST_CASE("a product in bfloat16 is that of the rounded operands, wherever and however they lie") {
  const auto rounded = [](const floats& v) {
    floats r;
    for (const float x : v) r.push_back(float_of(bf16_of(x)));
    return r;
  };
  const auto halves = [](const floats& v) {
    std::vector<bf16> r(v.size());
    round_to_bf16(v, r);
    return r;
  };
  for (const gemm_size& size : gemm_sizes) {
    CAPTURE(size.rows);
    CAPTURE(size.columns);
    CAPTURE(size.depth);
    const floats a = normals(size.rows * size.depth, 1), b = normals(size.depth * size.columns, 2);
    const floats ra = rounded(a), rb = rounded(b);
    const auto hb = halves(b);
    const floats before = normals(size.rows * size.columns, 4);
    floats scratch(gemm_scratch(size.columns, size.depth)), expected(before.size());
    const auto check = [&](const auto& left, const auto& right, auto... precision) {
      floats c = before;
      gemm(size, left, right, c.data(), size.columns, gemm_start::result, nullptr, scratch.data(),
           precision...);
      CHECK(c == expected);
    };
    const auto both = [](const auto& m, std::int64_t stride, bool turned) {
      return turned ? transposed(m.data(), stride) : row_major(m.data(), stride);
    };
    for (const bool turn_a : {false, true}) {
      for (const bool turn_b : {false, true}) {
        const std::int64_t row_a = turn_a ? size.rows : size.depth,
                           row_b = turn_b ? size.depth : size.columns;
        expected = product(size, both(ra, row_a, turn_a), both(rb, row_b, turn_b), before, size.columns);
        check(both(a, row_a, turn_a), both(b, row_b, turn_b), operand_precision::bf16);
        check(both(a, row_a, turn_a), both(hb, row_b, turn_b));
      }
    }
  }
}

TEST_CASE("a product writes its own elements only") {
  const gemm_size size{9, 21, 40};
  const floats a = normals(size.rows * size.depth, 1), b = normals(size.depth * size.columns, 2);
  floats scratch(gemm_scratch(size.columns, size.depth)), c(9 * 30 + 8, -5.0F);
  gemm(size, row_major(a.data(), 40), row_major(b.data(), 21), c.data(), 30, gemm_start::zero, nullptr,
       scratch.data());
  for (std::size_t i = 0; i < c.size(); ++i) {
    if (i % 30 >= 21 || i >= 270) CHECK(c[i] == -5.0F);
  }
}

TEST_CASE("GELU, SiLU and their derivatives agree with the C library's in double precision") {
  const std::int64_t rows = 37, columns = 27;
  const floats x = normals(rows * columns, 1, 3.0F), d = normals(rows * columns, 2);
  floats y(x.size()), dx(x.size()), bias(columns);
  std::vector<double> expected(x.size()), sums(columns);
  const auto check = [&](auto f, const floats& ours) {
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = f(static_cast<double>(x[i]));
    CHECK(relative_error(ours, expected) < 1e-6);
  };
  const auto check_slope = [&](auto f, const floats& ours) {
    for (std::size_t i = 0; i < x.size(); ++i)
      expected[i] = static_cast<double>(d[i]) * slope(f, static_cast<double>(x[i]));
    CHECK(relative_error(ours, expected) < 1e-6);
  };
  gelu(rows * columns, x.data(), y.data());
  check(gelu_of, y);
  gelu_backward(rows, columns, x.data(), d.data(), dx.data(), bias.data());
  check_slope(gelu_of, dx);
  for (std::size_t i = 0; i < expected.size(); ++i) sums[i % columns] += expected[i];
  CHECK(relative_error(bias, sums) < 1e-6);
  silu(rows * columns, x.data(), y.data());
  check(silu_of, y);
  silu_backward(rows * columns, x.data(), d.data(), dx.data());
  check_slope(silu_of, dx);
}

TEST_CASE("activations are finite at any finite input and keep NaN") {
  const floats x{-1e30F, -200.0F, -90.0F, 0.0F, 90.0F, 200.0F, 1e12F, NAN};
  floats y(8), dx(8), bias(8);
  const floats d(8, 1.0F);
  gelu(8, x.data(), y.data());
  for (std::size_t i = 1; i < 6; ++i) CHECK(y[i] == doctest::Approx(x[i] > 0 ? x[i] : 0.0F));
  CHECK(std::isnan(y[7]));
  gelu_backward(1, 8, x.data(), d.data(), dx.data(), bias.data());
  for (std::size_t i = 1; i < 6; ++i) CHECK(std::isfinite(dx[i]));
  CHECK(std::isnan(dx[7]));
  silu(8, x.data(), y.data());
  for (std::size_t i = 1; i < 6; ++i) CHECK(y[i] == doctest::Approx(x[i] > 0 ? x[i] : 0.0F));
  CHECK(std::isnan(y[7]));
}

TEST_CASE("features of a time agree with the C library's in double precision") {
  floats ours(time_features_count);
  for (const float time : {0.0F, 0.001F, 0.37F, 0.999F, 1.0F}) {
    time_features(time, ours.data());
    for (std::size_t i = 0; i < 128; ++i) {
      const float angle =
          time * 1000.0F * static_cast<float>(std::exp(-std::log(1e4) * static_cast<double>(i) / 128));
      CHECK(std::abs(static_cast<double>(ours[i]) - std::cos(static_cast<double>(angle))) < 1e-7);
      CHECK(std::abs(static_cast<double>(ours[128 + i]) - std::sin(static_cast<double>(angle))) < 1e-7);
    }
  }
}

TEST_CASE("a seam is the gated sum, its layer norm and the modulation") {
  const token_grid grid{2, 5, 24};
  const floats stream = normals(grid.count(), 1), branch = normals(grid.count(), 2),
               vectors = normals(2 * 3 * 24, 3);
  floats sum(stream.size()), normal(stream.size()), reciprocal(10), modulated(stream.size());
  seam_forward(grid, {stream.data(),
                      branch.data(),
                      {vectors.data(), 72},
                      {vectors.data() + 24, 72},
                      {vectors.data() + 48, 72},
                      sum.data(),
                      normal.data(),
                      reciprocal.data(),
                      modulated.data()});
  std::vector<double> sums(stream.size()), expected(stream.size());
  for (std::size_t row = 0; row < 10; ++row) {
    const float* v = vectors.data() + row / 5 * 72;
    double mean = 0, variance = 0;
    for (std::size_t j = 0; j < 24; ++j) {
      sums[row * 24 + j] = static_cast<double>(stream[row * 24 + j]) +
                           static_cast<double>(v[j]) * static_cast<double>(branch[row * 24 + j]);
      mean += sums[row * 24 + j] / 24;
    }
    for (std::size_t j = 0; j < 24; ++j) variance += std::pow(sums[row * 24 + j] - mean, 2) / 24;
    for (std::size_t j = 0; j < 24; ++j) {
      expected[row * 24 + j] =
          (sums[row * 24 + j] - mean) / std::sqrt(variance + 1e-6) * (1 + static_cast<double>(v[24 + j])) +
          static_cast<double>(v[48 + j]);
    }
  }
  CHECK(relative_error(sum, sums) < 1e-6);
  CHECK(relative_error(modulated, expected) < 1e-6);
}

TEST_CASE("attention is the weighted mean of the values") {
  const std::int64_t n = attention.tokens, width = attention.width();
  const floats qkv = normals(attention.samples * n * 3 * width, 1);
  floats weights(static_cast<std::size_t>(attention.weights())),
      out(static_cast<std::size_t>(attention.samples * n * width));
  floats scratch(attention_scratch(attention));
  attention_forward(attention, qkv.data(), weights.data(), out.data(), scratch.data());
  std::vector<double> expected(out.size());
  for (std::int64_t row = 0; row < attention.samples * n; ++row) {
    for (std::int64_t head = 0; head < attention.heads; ++head) {
      const auto value = [&](std::int64_t which, std::int64_t token, std::int64_t i) {
        const std::int64_t at =
            (row / n * n + token) * 3 * width + which * width + head * attention.head_width + i;
        return static_cast<double>(qkv[static_cast<std::size_t>(at)]);
      };
      std::vector<double> e(static_cast<std::size_t>(n));
      double total = 0;
      for (std::int64_t k = 0; k < n; ++k) {
        double score = 0;
        for (std::int64_t i = 0; i < 8; ++i) score += value(0, row % n, i) * value(1, k, i);
        total += e[static_cast<std::size_t>(k)] = std::exp(score / std::sqrt(8.0));
      }
      for (std::int64_t i = 0; i < 8; ++i) {
        double& to = expected[static_cast<std::size_t>(row * width + head * 8 + i)];
        for (std::int64_t k = 0; k < n; ++k) to += e[static_cast<std::size_t>(k)] / total * value(2, k, i);
      }
    }
  }
  CHECK(relative_error(out, expected) < 1e-6);
}

TEST_CASE("a seam that is differentiated in two parts gives the bits of one") {
  const token_grid grid{2, 5, 16};
  const floats d_modulated = normals(grid.count(), 1), normal = normals(grid.count(), 2),
               branch = normals(grid.count(), 3), vectors = normals(3 * grid.samples * grid.width, 4),
               reciprocal = normals(grid.rows(), 5), before = normals(grid.count(), 6);
  const std::ptrdiff_t stride = 3 * grid.width;
  const float* scale = vectors.data();
  const float* gate = vectors.data() + grid.width;
  struct derivatives {
    floats d_sum, d_branch, d_vectors, d_bias;
    bool operator==(const derivatives&) const = default;
  };
  derivatives one{before, floats(before.size()), floats(vectors.size()), floats(16)}, two = one;
  const auto all = [&](derivatives& d, bool with_branch) {
    return seam_derivative{.d_modulated = d_modulated.data(),
                           .normal = normal.data(),
                           .reciprocal = reciprocal.data(),
                           .scale = {scale, stride},
                           .gate = {gate, stride},
                           .branch = with_branch ? branch.data() : nullptr,
                           .sum_is_used = true,
                           .d_sum = d.d_sum.data(),
                           .d_branch = d.d_branch.data(),
                           .d_gate = {d.d_vectors.data(), stride},
                           .d_scale = {d.d_vectors.data() + 16, stride},
                           .d_shift = {d.d_vectors.data() + 32, stride},
                           .d_bias = d.d_bias.data()};
  };
  seam_backward(grid, all(one, true));
  seam_backward(grid, all(two, false));
  CHECK_FALSE(one == two);
  gate_backward(grid, {.d_sum = two.d_sum.data(),
                       .branch = branch.data(),
                       .gate = {gate, stride},
                       .d_branch = two.d_branch.data(),
                       .d_gate = {two.d_vectors.data(), stride},
                       .d_bias = two.d_bias.data()});
  CHECK(one == two);
}

TEST_CASE("every kernel gives the same bits on every instruction set") {
  const std::int64_t n = attention.samples * attention.tokens, width = attention.width();
  const floats qkv = normals(n * 3 * width, 1), d = normals(n * width, 2), vectors = normals(6 * width, 3);
  floats weights(static_cast<std::size_t>(attention.weights())), out(d.size()), d_qkv(qkv.size()),
      sum(d.size());
  floats normal(d.size()), modulated(d.size()), reciprocal(static_cast<std::size_t>(n)),
      scratch(attention_scratch(attention));
  floats features(time_features_count), bias(static_cast<std::size_t>(width)), d_vectors(vectors.size());
  attention_forward(attention, qkv.data(), weights.data(), out.data(), scratch.data());
  attention_backward(attention, qkv.data(), weights.data(), d.data(), d_qkv.data(), scratch.data());
  const token_grid grid{attention.samples, attention.tokens, width};
  const std::ptrdiff_t stride = 3 * width;
  seam_forward(grid, {qkv.data(),
                      out.data(),
                      {vectors.data(), stride},
                      {vectors.data() + width, stride},
                      {vectors.data() + 2 * width, stride},
                      sum.data(),
                      normal.data(),
                      reciprocal.data(),
                      modulated.data()});
  floats d_sum = d, d_branch(d.size());
  seam_backward(grid, {.d_modulated = modulated.data(),
                       .normal = normal.data(),
                       .reciprocal = reciprocal.data(),
                       .scale = {vectors.data() + width, stride},
                       .gate = {vectors.data(), stride},
                       .branch = out.data(),
                       .sum_is_used = true,
                       .d_sum = d_sum.data(),
                       .d_branch = d_branch.data(),
                       .d_gate = {d_vectors.data(), stride},
                       .d_scale = {d_vectors.data() + width, stride},
                       .d_shift = {d_vectors.data() + 2 * width, stride},
                       .d_bias = bias.data()});
  gelu_backward(n, width, sum.data(), d.data(), out.data(), bias.data());
  silu(n * width, out.data(), normal.data());
  time_features(0.123F, features.data());
  attention_size rounded = attention;
  rounded.precision = operand_precision::bf16;
  floats bf16_weights(weights.size()), bf16_out(d.size()), bf16_d_qkv(qkv.size());
  attention_forward(rounded, qkv.data(), bf16_weights.data(), bf16_out.data(), scratch.data());
  attention_backward(rounded, qkv.data(), bf16_weights.data(), d.data(), bf16_d_qkv.data(), scratch.data());
  std::uint64_t hash = 0;
  for (const floats* v :
       {&weights, &d_qkv, &modulated, &d_sum, &d_branch, &d_vectors, &out, &normal, &features, &bias}) {
    hash = hash64(std::span<const float>(*v), hash);
  }
  CHECK(hash == 16009962573517262305ULL);
  for (const floats* v : {&bf16_weights, &bf16_out, &bf16_d_qkv})
    hash = hash64(std::span<const float>(*v), hash);
  CHECK(hash == 8974405573535242412ULL);
}
