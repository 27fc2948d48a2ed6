// What machines share: hosts lie in racks, racks in zones. An empty label is shared with nobody.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/base/control.hpp"

namespace perdura::coordinator {

struct candidate;

enum class nearness : std::uint8_t { same_host, same_rack, same_zone, apart };
nearness nearness_of(const node_labels& a, const node_labels& b);

enum class domain : std::uint8_t { host, rack, zone };

// Members in an order in which all that share a zone, a rack or a host are neighbours, so that each domain is
// a range of positions. A host belongs to the rack and zone that its first member names.
class failure_domains {
 public:
  struct range {
    std::uint32_t first{}, end{};
    bool operator==(const range&) const = default;
  };

  explicit failure_domains(const std::vector<candidate>& members);

  std::uint32_t members() const { return static_cast<std::uint32_t>(member_at_.size()); }
  std::uint32_t count(domain d) const { return counts_[static_cast<std::size_t>(d)]; }
  std::uint32_t position_of(std::uint32_t member) const { return position_of_[member]; }
  std::uint32_t member_at(std::uint32_t position) const { return member_at_[position]; }
  // The positions of all that share the member's host, rack or zone.
  range range_of(domain d, std::uint32_t member) const {
    return ranges_[static_cast<std::size_t>(d)][position_of_[member]];
  }
  nearness between(std::uint32_t a, std::uint32_t b) const;

 private:
  std::vector<std::uint32_t> position_of_, member_at_;
  std::vector<range> ranges_[3];  // by position
  std::uint32_t counts_[3] = {};
};

}  // namespace perdura::coordinator
