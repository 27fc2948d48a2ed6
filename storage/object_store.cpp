#include "storage/object_store.hpp"

#include <algorithm>

namespace perdura::storage {
namespace {

constexpr std::size_t name_parts_max = 3;
constexpr std::size_t name_part_bytes_max = 100;

bool is_part(std::string_view part) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !part.empty() && part.size() <= name_part_bytes_max && part.front() != '.' &&
         std::all_of(part.begin(), part.end(), is_allowed);
}

}  // namespace

bool is_stored_name(std::string_view name) {
  for (std::size_t parts = 0; parts < name_parts_max; ++parts) {
    const auto slash = name.find('/');
    if (!is_part(name.substr(0, slash))) return false;
    if (slash == name.npos) return true;
    name.remove_prefix(slash + 1);
  }
  return false;
}

}  // namespace perdura::storage
