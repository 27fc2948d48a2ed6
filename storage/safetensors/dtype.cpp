#include "storage/safetensors/dtype.hpp"

namespace perdura::safetensors {

const char* to_string(dtype type) {
  switch (type) {
    case dtype::boolean: return "BOOL";
    case dtype::u8: return "U8";
    case dtype::i8: return "I8";
    case dtype::f8_e4m3: return "F8_E4M3";
    case dtype::f8_e5m2: return "F8_E5M2";
    case dtype::i16: return "I16";
    case dtype::u16: return "U16";
    case dtype::f16: return "F16";
    case dtype::bf16: return "BF16";
    case dtype::i32: return "I32";
    case dtype::u32: return "U32";
    case dtype::f32: return "F32";
    case dtype::f64: return "F64";
    case dtype::i64: return "I64";
    case dtype::u64: return "U64";
  }
  return "unknown";
}

std::optional<dtype> parse_dtype(std::string_view name) {
  for (const dtype type : all_dtypes)
    if (name == to_string(type)) return type;
  return std::nullopt;
}

std::uint32_t bytes_of(dtype type) {
  switch (type) {
    case dtype::boolean:
    case dtype::u8:
    case dtype::i8:
    case dtype::f8_e4m3:
    case dtype::f8_e5m2: return 1;
    case dtype::i16:
    case dtype::u16:
    case dtype::f16:
    case dtype::bf16: return 2;
    case dtype::i32:
    case dtype::u32:
    case dtype::f32: return 4;
    case dtype::f64:
    case dtype::i64:
    case dtype::u64: return 8;
  }
  return 0;
}

}  // namespace perdura::safetensors
