// The element types of the format, by the names that it gives them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace perdura::safetensors {

enum class dtype : std::uint8_t {
  boolean,
  u8,
  i8,
  f8_e4m3,
  f8_e5m2,
  i16,
  u16,
  f16,
  bf16,
  i32,
  u32,
  f32,
  f64,
  i64,
  u64,
};
inline constexpr std::array all_dtypes{dtype::boolean, dtype::u8,  dtype::i8,  dtype::f8_e4m3, dtype::f8_e5m2,
                                       dtype::i16,     dtype::u16, dtype::f16, dtype::bf16,    dtype::i32,
                                       dtype::u32,     dtype::f32, dtype::f64, dtype::i64,     dtype::u64};

const char* to_string(dtype type);
std::optional<dtype> parse_dtype(std::string_view name);
std::uint32_t bytes_of(dtype type);

}  // namespace perdura::safetensors
