#include "coordinator/logic/failure_domains.hpp"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>
#include <tuple>
#include <unordered_map>

#include "coordinator/logic/planner.hpp"

namespace perdura::coordinator {

namespace {

// Numbers in order of first appearance; an empty name is always a new one.
class numbering {
 public:
  std::uint32_t of(const std::string& name) {
    if (name.empty()) return next_++;
    const auto [at, is_new] = known_.try_emplace(name, next_);
    if (is_new) ++next_;
    return at->second;
  }

 private:
  std::unordered_map<std::string, std::uint32_t> known_;
  std::uint32_t next_ = 0;
};

bool shares(const std::string& a, const std::string& b) { return !a.empty() && a == b; }

// Racks of different zones may have the same name.
bool shares_rack(const node_labels& a, const node_labels& b) {
  return shares(a.rack, b.rack) && a.zone == b.zone;
}

}  // namespace

nearness nearness_of(const node_labels& a, const node_labels& b) {
  if (shares(a.host, b.host)) return nearness::same_host;
  if (shares_rack(a, b)) return nearness::same_rack;
  return shares(a.zone, b.zone) ? nearness::same_zone : nearness::apart;
}

failure_domains::failure_domains(const std::vector<candidate>& members) {
  struct place {
    std::uint32_t zone, rack, host;
    bool operator==(const place&) const = default;
  };
  numbering hosts, racks, zones;
  std::vector<place> of_host;
  std::vector<std::uint32_t> zone_of_rack;
  std::vector<std::uint32_t> host_of_member;
  for (const auto& m : members) {
    const auto host = hosts.of(m.at.host);
    host_of_member.push_back(host);
    if (host < of_host.size()) continue;
    const auto rack = racks.of(m.at.rack.empty() ? "" : m.at.rack + '\n' + m.at.zone);
    if (rack == zone_of_rack.size()) zone_of_rack.push_back(zones.of(m.at.zone));
    of_host.push_back({zone_of_rack[rack], rack, host});
  }
  counts_[0] = static_cast<std::uint32_t>(of_host.size());
  counts_[1] = static_cast<std::uint32_t>(zone_of_rack.size());
  counts_[2] = zone_of_rack.empty() ? 0 : 1 + *std::max_element(zone_of_rack.begin(), zone_of_rack.end());

  member_at_.resize(members.size());
  std::iota(member_at_.begin(), member_at_.end(), 0U);
  const auto key = [&](std::uint32_t m) {
    const auto& p = of_host[host_of_member[m]];
    return std::tuple(p.zone, p.rack, p.host, m);
  };
  std::sort(member_at_.begin(), member_at_.end(), [&](auto a, auto b) { return key(a) < key(b); });
  position_of_.resize(members.size());
  for (std::uint32_t p = 0; p < member_at_.size(); ++p) position_of_[member_at_[p]] = p;
  for (std::size_t d = 0; d < 3; ++d) {
    ranges_[d].resize(members.size());
    const auto number = [&](std::uint32_t p) {
      const auto& at = of_host[host_of_member[member_at_[p]]];
      return std::array{at.host, at.rack, at.zone}[d];
    };
    for (std::uint32_t first = 0, end = 0; first < members.size(); first = end) {
      for (end = first; end < members.size() && number(end) == number(first); ++end) {}
      std::fill(ranges_[d].begin() + first, ranges_[d].begin() + end, range{first, end});
    }
  }
}

nearness failure_domains::between(std::uint32_t a, std::uint32_t b) const {
  for (const auto d : {domain::host, domain::rack, domain::zone})
    if (range_of(d, a) == range_of(d, b)) return static_cast<nearness>(d);
  return nearness::apart;
}

}  // namespace perdura::coordinator
