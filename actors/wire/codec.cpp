#include "actors/wire/codec.hpp"

#include <cstdio>
#include <type_traits>
#include <variant>

#include "actors/wire/fields.hpp"

namespace perdura::wire {

namespace {

// The blob of a frame's body, or none.
template <class Body>
auto* payload(Body& body) {
  using type = std::remove_const_t<Body>;
  if constexpr (std::is_same_v<type, partial_frame> || std::is_same_v<type, reduced_frame>)
    return &body.gradient;
  else if constexpr (std::is_same_v<type, parameters_frame>)
    return &body.values;
  else if constexpr (std::is_same_v<type, tile_copy_frame>)
    return &body.state;
  else
    return static_cast<std::conditional_t<std::is_const_v<Body>, const blob*, blob*>>(nullptr);
}

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return hash;
}

std::string hex(std::uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::uint64_t hash_of_all_types() {
  std::string text;
#define X(type)         \
  text += #type;        \
  describe<type>(text); \
  text += '\n';
  PERDURA_WIRE_MESSAGES(X)
  X(frame)
#undef X
  return fnv1a(text);
}

template <class T>
constexpr const char* message_name() {
#define X(type) \
  if constexpr (std::is_same_v<T, type>) return #type;
  PERDURA_WIRE_MESSAGES(X)
#undef X
}

}  // namespace

std::vector<std::byte> encode_head(const frame& f) { return encode(f); }

blob body_of(const frame& f) {
  return std::visit(
      [](const auto& body) {
        const blob* b = payload(body);
        return b != nullptr ? *b : blob{};
      },
      f.body);
}

result<frame> decode_frame(std::span<const std::byte> head, blob body) {
  auto f = decode<frame>(head, "a frame's head");
  if (!f) return f;
  blob* target = std::visit([](auto& b) -> blob* { return payload(b); }, f->body);
  if (target != nullptr)
    *target = std::move(body);
  else if (!body.empty())
    return error{errc::corrupt, "cannot read a frame: it has a body of " + std::to_string(body.size()) +
                                    " bytes, but its kind has none"};
  return f;
}

template <class T>
std::string encode_message(const T& message) {
  std::string bytes;
  writer(bytes).put(message);
  return bytes;
}

template <class T>
result<T> decode_message(std::span<const std::byte> bytes) {
  return decode<T>(bytes, message_name<T>());
}

#define X(type)                                     \
  template std::string encode_message(const type&); \
  template result<type> decode_message(std::span<const std::byte>);
PERDURA_WIRE_MESSAGES(X)
#undef X

std::uint64_t type_table_hash() {
  static const std::uint64_t hash = hash_of_all_types();
  return hash;
}

bool is_our_release(std::uint32_t protocol, std::uint64_t type_table) {
  return protocol == protocol_version && type_table == type_table_hash();
}

result<void> check_release(std::uint32_t protocol, std::uint64_t type_table, const std::string& who) {
  if (is_our_release(protocol, type_table)) return {};
  return error{errc::version_mismatch, who + " speaks protocol " + std::to_string(protocol) +
                                           " with message layout " + hex(type_table) +
                                           ", this process protocol " + std::to_string(protocol_version) +
                                           " with " + hex(type_table_hash()) +
                                           ": install the same release of Perdura on all machines"};
}

}  // namespace perdura::wire
