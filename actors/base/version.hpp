// What a process says of itself.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace perdura {

// Of manifests and packs (storage/).
inline constexpr std::uint32_t checkpoint_format_version = 2;

std::string_view build_version();                    // "0.1.0"
std::string version_text(std::string_view program);  // "perdura 0.1.0 (protocol 1, checkpoint format 1)"

}  // namespace perdura
