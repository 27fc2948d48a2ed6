// JSON that strangers wrote, read strictly: a key twice, nesting and lists beyond what the format has are
// refused before anything is built of it, so that memory stays in proportion to the text.
#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <string_view>

#include "actors/base/result.hpp"

namespace perdura::safetensors {

inline constexpr std::size_t json_depth_max = 3;  // {"name": {"shape": [..]}}
inline constexpr std::size_t json_list_max = 32;
inline constexpr std::size_t json_keys_max = std::size_t{1} << 18;  // of one object

// Errors: corrupt, with what is wrong and, where the syntax is, at which byte.
result<boost::json::value> parse_strictly(std::string_view text);

}  // namespace perdura::safetensors
