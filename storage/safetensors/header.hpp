// The header of a safetensors file (huggingface/safetensors, format 1). A file is
//   8 bytes, little-endian: size of the header; the header, JSON, filled up with spaces; the data
//   {"__metadata__": {text: text}, NAME: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ..}
// with offsets from where the data begins. Tensors lie one behind the other, without gap or overlap, to the
// end of the file; elements are little-endian and row-major.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "actors/base/result.hpp"
#include "storage/safetensors/dtype.hpp"
#include "storage/safetensors/strict_json.hpp"

namespace perdura::safetensors {

// The reference allows 100 MB: that would be a million tensors, we hold a quarter of that.
inline constexpr std::uint64_t header_bytes_max = std::uint64_t{32} << 20;
inline constexpr std::size_t tensors_max = json_keys_max - 1;
inline constexpr std::size_t rank_max = json_list_max;
inline constexpr std::uint32_t size_bytes = 8;
inline constexpr const char* metadata_key = "__metadata__";

struct tensor_info {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::uint64_t> shape;  // empty: one element
  std::uint64_t begin{};             // bytes from where the data begins
  std::uint64_t end{};
  std::uint64_t bytes() const { return end - begin; }
  std::uint64_t elements() const { return bytes() / bytes_of(type); }
  bool operator==(const tensor_info&) const = default;
};

struct header {
  std::map<std::string, std::string> metadata;
  std::vector<tensor_info> tensors;  // in the order of their data
  bool operator==(const header&) const = default;
  std::uint64_t data_bytes() const { return tensors.empty() ? 0 : tensors.back().end; }
};

std::string shape_text(const std::vector<std::uint64_t>& shape);  // "[2, 3]"

// Bytes of a tensor; errors: exhausted when they do not fit 63 bits, or the shape has too many dimensions.
result<std::uint64_t> bytes_for(dtype type, std::span<const std::uint64_t> shape);

// `data_bytes`: all that follows the header in its file. Errors: corrupt or exhausted, by tensor.
result<header> parse_header(std::string_view json, std::uint64_t data_bytes);

// Gives every tensor its place, in an order that keeps each aligned to its elements (widest first, as the
// reference writes). Errors: invalid_argument for a name that is empty, too long, there twice or no UTF-8.
result<void> lay_out(header& h);
// Of a header that is laid out: all bytes before the data, a multiple of 8. Errors: exhausted.
result<std::string> encode_header(const header& h);

}  // namespace perdura::safetensors
