// Which addresses a process may listen on and speak to.
#pragma once

#include <string>

#include "actors/base/result.hpp"

namespace perdura::runtime {

bool is_loopback(const std::string& host);
// errc::refused with the reason unless the host is loopback.
result<void> check_host(const std::string& host);

}  // namespace perdura::runtime
