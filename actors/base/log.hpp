// The log facade: components write lines here; the process decides where they go (actors/runtime/log_sink).
// Exists because LibTorch's headers carry an fmt that clashes with spdlog's in one source file.
#pragma once

#include <string_view>

namespace perdura::log {

enum class level : unsigned char { debug, info, warn, error };

using sink = void (*)(level, std::string_view line);

// Called once by main before threads start; without it lines go to standard error.
void set_sink(sink s, level least);
void write(level l, std::string_view line);

inline void debug(std::string_view line) { write(level::debug, line); }
inline void info(std::string_view line) { write(level::info, line); }
inline void warn(std::string_view line) { write(level::warn, line); }
inline void error(std::string_view line) { write(level::error, line); }

}  // namespace perdura::log
