// Which addresses a process may listen on and speak to.
#pragma once

#include <string>

#include "actors/base/control.hpp"
#include "actors/base/result.hpp"

namespace perdura::runtime {

bool is_loopback(const std::string& host);
// errc::refused with the reason, where the host is not loopback and there is no TLS.
result<void> check_host(const std::string& host, bool has_tls);

// The address of this machine that its packets to `to` carry: where others that reach `to` can reach us.
// Sends nothing. Errors: the name is unknown, or there is no way there.
result<std::string> local_address_towards(const endpoint& to);

}  // namespace perdura::runtime
