// This process, its machine, and the programs beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "actors/base/result.hpp"

namespace perdura::runtime {

// One of Perdura's programs: beside this one, in libexec/perdura of the same prefix, or in PATH. Error: it is
// nowhere; says where it was looked for.
result<std::filesystem::path> find_program(const std::string& name);

// This machine's, as it calls itself; "localhost" if it has none.
std::string host_name();

// The same for all processes on one machine, in whichever container, and for no two machines, not even
// clones: the kernel's boot id. Where there is none: host_name().
std::string machine_label();

// Of this process; 0 if the kernel does not say.
std::uint64_t resident_bytes();

}  // namespace perdura::runtime
