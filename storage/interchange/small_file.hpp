#pragma once

#include <filesystem>
#include <string_view>

#include "actors/base/result.hpp"

namespace perdura::interchange {

// Durable, whole or not at all; replaces what is there.
result<void> write_small_file(const std::filesystem::path& path, std::string_view text);

}  // namespace perdura::interchange
