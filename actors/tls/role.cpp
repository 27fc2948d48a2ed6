#include "actors/tls/role.hpp"

#include <algorithm>
#include <cctype>

namespace perdura::tls {
namespace {
constexpr std::size_t name_length_max = 40;
}

const char* to_string(role r) {
  switch (r) {
    case role::coordinator: return "coordinator";
    case role::node: return "node";
    case role::worker: return "worker";
    case role::gateway: return "gateway";
    case role::admin: return "admin";
  }
  return "unknown";
}

result<role> parse_role(const std::string& text) {
  for (const auto r : all_roles)
    if (text == to_string(r)) return r;
  return error{errc::invalid_argument,
               "\"" + text + "\" is no role: expected coordinator, node, worker, gateway or admin"};
}

std::string to_string(const subject& s) { return std::string(to_string(s.as)) + " " + s.name; }

std::string uri_of(const subject& s) { return std::string("perdura://") + to_string(s.as) + "/" + s.name; }

std::string dns_name_of(role r) { return std::string(to_string(r)) + ".perdura.internal"; }

result<void> check_name(const std::string& name) {
  const auto is_fine = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  };
  if (!name.empty() && name.size() <= name_length_max && name.front() != '.' &&
      std::all_of(name.begin(), name.end(), is_fine))
    return {};
  return error{errc::invalid_argument, "\"" + name + "\" is no name: expected 1 to " +
                                           std::to_string(name_length_max) +
                                           " letters, digits, \"-\", \"_\" or \".\""};
}

}  // namespace perdura::tls
