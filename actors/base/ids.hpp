// Identities and positions as strong types: a step is never added to a slot by accident.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <string>

namespace perdura {

template <class Tag, class Rep>
struct ordinal {
  using rep = Rep;
  Rep value{};
  constexpr ordinal() = default;
  constexpr explicit ordinal(Rep v) : value(v) {}
  constexpr auto operator<=>(const ordinal&) const = default;
  constexpr ordinal operator+(Rep n) const { return ordinal(static_cast<Rep>(value + n)); }
  constexpr ordinal operator-(Rep n) const { return ordinal(static_cast<Rep>(value - n)); }
};

// Step 0 is the initial state; the first trained step is 1. A tile's version is the last step applied to it.
using step_number = ordinal<struct step_tag, std::uint64_t>;
using tile_id = ordinal<struct tile_tag, std::uint32_t>;
// Raised only when committed steps had to be abandoned.
using timeline_number = ordinal<struct timeline_tag, std::uint32_t>;
// A coordinator's life, claimed durably.
using term_number = ordinal<struct term_tag, std::uint32_t>;
using byte_count = ordinal<struct byte_count_tag, std::uint64_t>;

// A process's life: 128 random bits. Never derived from a host, a port or a CAF node id.
struct incarnation {
  std::uint64_t high{};
  std::uint64_t low{};
  constexpr auto operator<=>(const incarnation&) const = default;
  constexpr bool is_none() const { return high == 0 && low == 0; }
};

// Raised by each recovery; compared lexicographically, so a new term outranks all eras of older ones.
struct era {
  term_number term;
  std::uint32_t count{};
  constexpr auto operator<=>(const era&) const = default;
};

// Sequence 0 is the plan of the recovery that opened the era, 1.. are the proposals made within it.
struct plan_id {
  era at;
  std::uint32_t sequence{};
  constexpr auto operator<=>(const plan_id&) const = default;
  constexpr bool is_none() const { return *this == plan_id{}; }
};

std::string to_string(const incarnation& who);   // 32 hexadecimal digits
std::string short_name(const incarnation& who);  // the first 8 of them, for people
std::string to_string(const era& e);             // "2.17"
std::string to_string(const plan_id& id);        // "2.17/3"
// None when the text is not 32 hexadecimal digits.
incarnation parse_incarnation(const std::string& text);

template <class Tag, class Rep>
std::string to_string(const ordinal<Tag, Rep>& n) {
  return std::to_string(n.value);
}

}  // namespace perdura

template <class Tag, class Rep>
struct std::hash<perdura::ordinal<Tag, Rep>> {
  std::size_t operator()(const perdura::ordinal<Tag, Rep>& n) const noexcept {
    return std::hash<Rep>{}(n.value);
  }
};
template <>
struct std::hash<perdura::incarnation> {
  std::size_t operator()(const perdura::incarnation& i) const noexcept {
    return i.high ^ (i.low * 0x9e3779b97f4a7c15ULL);
  }
};
