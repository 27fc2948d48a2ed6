// What a process may be in the cluster, and the name it goes by: what a certificate says of its holder.
// Written into it as the URI perdura://ROLE/NAME, and for Cap'n Proto's TLS, which sees nothing else, as the
// common name, the same, and the DNS name ROLE.perdura.internal.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "actors/base/result.hpp"

namespace perdura::tls {

enum class role : std::uint8_t { coordinator, node, worker, gateway, admin };
inline constexpr std::array all_roles{role::coordinator, role::node, role::worker, role::gateway,
                                      role::admin};

const char* to_string(role r);
result<role> parse_role(const std::string& text);

struct subject {
  role as = role::worker;
  std::string name;
  bool operator==(const subject&) const = default;
};

std::string to_string(const subject& s);  // "worker node-1"
std::string uri_of(const subject& s);
std::string dns_name_of(role r);
// 1 to 40 letters, digits, "-", "_" and ".", as fit a certificate's common name.
result<void> check_name(const std::string& name);

}  // namespace perdura::tls
