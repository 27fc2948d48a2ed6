// Element by element operations of a diffusion transformer, and sums over rows in row order.
#pragma once

#include <cstdint>

namespace perdura::kernels {

// The tanh form of GELU: x / (1 + exp(-2 sqrt(2/pi) (x + 0.044715 x^3))).
void gelu(std::int64_t count, const float* x, float* y);
// d_x = d_y * gelu'(x), and d_bias = the sum of d_x over the rows. d_x may be d_y.
void gelu_backward(std::int64_t rows, std::int64_t columns, const float* x, const float* d_y, float* d_x,
                   float* d_bias);

void silu(std::int64_t count, const float* x, float* y);
void silu_backward(std::int64_t count, const float* x, const float* d_y, float* d_x);  // d_x may be d_y

// out[j] = the sum over the rows of x[i][j].
void column_sums(std::int64_t rows, std::int64_t columns, const float* x, float* out);

// Sinusoidal features of a time in [0, 1] scaled by 1000: cosines, then sines, with frequencies from 1 down
// towards 1/10000.
inline constexpr std::int64_t time_features_count = 256;
void time_features(float time, float* out);

}  // namespace perdura::kernels
