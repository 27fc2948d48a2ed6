// The wire format of all our structs: little-endian, fixed width, lengths as 32 bits, floats as bit patterns.
// CAF 0.17's own serialisation loops on infinities, changes NaN and -0, casts any integer to an enum and
// allocates from lengths it has not checked, so CAF carries our messages as opaque bytes (types.hpp) and only
// this file reads bytes from outside. No CAF here: the data links, the simulator and the durable log use it
// too.
//
// A struct is described once, by the list of its members in fields.hpp; writing, reading and the layout's
// fingerprint follow from it.
#pragma once

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <variant>
#include <vector>

#include "actors/base/ids.hpp"
#include "actors/base/result.hpp"

namespace perdura::wire {

// Longest string on the wire: a job file fits with room to spare.
inline constexpr std::size_t string_bytes_max = 1U << 20;
// Most elements of one vector: a tile's inventory of 2^22 tiles of 64 KiB is a model of 2^36 parameters.
inline constexpr std::size_t vector_elements_max = 1U << 22;

// Specialised in fields.hpp: a tuple of pointers to members, in wire order.
template <class T>
inline constexpr auto fields_of = std::tuple<>{};
template <class T>
inline constexpr bool is_described = false;
// The last value of an enum whose values are 0, 1, ... last.
template <class T>
inline constexpr T last_of = T{};
template <class T>
inline constexpr bool is_described_enum = false;

template <class T>
concept described = is_described<T>;

// A hello: its first two fields say whether the rest is laid out as here. If not, the rest is skipped, so
// that the receiver can refuse by name what it cannot read.
template <class T>
concept versioned = requires(T x) {
  x.protocol;
  x.type_table;
};
// Whether a process that said so speaks as this one does (codec.cpp).
bool is_our_release(std::uint32_t protocol, std::uint64_t type_table);

namespace detail {
static_assert(std::endian::native == std::endian::little, "the wire is little-endian, and so is this code");

template <class T, template <class...> class Template>
inline constexpr bool is_a = false;
template <template <class...> class Template, class... Ts>
inline constexpr bool is_a<Template<Ts...>, Template> = true;
template <class T>
inline constexpr bool is_ordinal = false;
template <class Tag, class Rep>
inline constexpr bool is_ordinal<ordinal<Tag, Rep>> = true;
template <class T>
inline constexpr bool is_byte_array = false;
template <std::size_t N>
inline constexpr bool is_byte_array<std::array<std::uint8_t, N>> = true;

template <class T>
using bits_of = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;

// The least bytes a value takes: a vector's length is believed only if that many can still follow.
template <class T>
constexpr std::size_t least_bytes() {
  if constexpr (std::is_same_v<T, std::string> || is_a<T, std::vector>)
    return sizeof(std::uint32_t);
  else if constexpr (is_a<T, std::optional> || is_a<T, std::variant> || std::is_enum_v<T>)
    return 1;
  else if constexpr (described<T>)
    return std::apply(
        []<class... M>(M... m) {
          return (std::size_t{0} + ... + least_bytes<std::remove_cvref_t<decltype(std::declval<T&>().*m)>>());
        },
        fields_of<T>);
  else
    return sizeof(T);
}
}  // namespace detail

// Appends values to a container of bytes.
template <class Container>
class writer {
 public:
  explicit writer(Container& out) : out_(out) {}

  template <class T>
  void put(const T& x) {
    if constexpr (detail::is_ordinal<T>) {
      put(x.value);
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(is_described_enum<T>, "give last_of in fields.hpp");
      put(static_cast<std::uint8_t>(x));
    } else if constexpr (std::is_floating_point_v<T>) {
      put(std::bit_cast<detail::bits_of<T>>(x));
    } else if constexpr (std::is_same_v<T, bool>) {
      put(static_cast<std::uint8_t>(x ? 1 : 0));
    } else if constexpr (std::is_integral_v<T>) {
      raw(&x, sizeof x);
    } else if constexpr (std::is_same_v<T, std::string>) {
      PERDURA_CHECK(x.size() <= string_bytes_max, "string too long for the wire");
      put(static_cast<std::uint32_t>(x.size()));
      raw(x.data(), x.size());
    } else if constexpr (detail::is_byte_array<T>) {
      raw(x.data(), x.size());
    } else if constexpr (detail::is_a<T, std::vector>) {
      PERDURA_CHECK(x.size() <= vector_elements_max, "vector too long for the wire");
      put(static_cast<std::uint32_t>(x.size()));
      for (const auto& element : x) put(element);
    } else if constexpr (detail::is_a<T, std::optional>) {
      put(x.has_value());
      if (x) put(*x);
    } else if constexpr (detail::is_a<T, std::variant>) {
      put(static_cast<std::uint8_t>(x.index()));
      std::visit([this](const auto& alternative) { this->put(alternative); }, x);
    } else {
      static_assert(described<T>, "describe the struct in fields.hpp");
      std::apply([&](auto... member) { (put(x.*member), ...); }, fields_of<T>);
    }
  }

 private:
  void raw(const void* data, std::size_t size) {
    if (size == 0) return;
    const std::size_t at = out_.size();
    out_.resize(at + size);
    std::memcpy(out_.data() + at, data, size);
  }

  Container& out_;
};

// Reads untrusted bytes. After the first failure every read gives a default value and `failed()` says why.
class reader {
 public:
  explicit reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  bool failed() const { return why_ != nullptr; }
  const char* why() const { return why_; }
  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }
  void skip_rest() { position_ = bytes_.size(); }
  void fail(const char* why) {
    if (!failed()) why_ = why;
  }

  template <class T>
  void get(T& x) {
    if (failed()) return;
    if constexpr (detail::is_ordinal<T>) {
      get(x.value);
    } else if constexpr (std::is_enum_v<T>) {
      static_assert(is_described_enum<T>, "give last_of in fields.hpp");
      std::uint8_t value = 0;
      get(value);
      if (value > static_cast<std::uint8_t>(last_of<T>)) return fail("an enum value is out of range");
      x = static_cast<T>(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      detail::bits_of<T> bits = 0;
      get(bits);
      x = std::bit_cast<T>(bits);
    } else if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t value = 0;
      get(value);
      if (value > 1) return fail("a bool is neither 0 nor 1");
      x = value == 1;
    } else if constexpr (std::is_integral_v<T>) {
      raw(&x, sizeof x);
    } else if constexpr (std::is_same_v<T, std::string>) {
      const std::size_t size = length(1, string_bytes_max);
      x.resize(size);
      raw(x.data(), size);
    } else if constexpr (detail::is_byte_array<T>) {
      raw(x.data(), x.size());
    } else if constexpr (detail::is_a<T, std::vector>) {
      get_vector(x);
    } else if constexpr (detail::is_a<T, std::optional>) {
      bool present = false;
      get(present);
      x.reset();
      if (present && !failed()) get(x.emplace());
    } else if constexpr (detail::is_a<T, std::variant>) {
      get_variant(x, std::make_index_sequence<std::variant_size_v<T>>{});
    } else {
      static_assert(described<T>, "describe the struct in fields.hpp");
      std::apply([&](auto... member) { (get_member(x, x.*member), ...); }, fields_of<T>);
      if constexpr (requires { wire_flaw(x); })
        if (const char* flaw = failed() ? nullptr : wire_flaw(x)) fail(flaw);
    }
  }

 private:
  template <class T, class M>
  void get_member(T& x, M& member) {
    if (is_foreign_) return;
    get(member);
    if constexpr (versioned<T>)
      if (static_cast<void*>(&member) == &x.type_table && !failed() &&
          !is_our_release(x.protocol, x.type_table)) {
        is_foreign_ = true;
        skip_rest();
      }
  }

  // A length that the bytes still to come can hold, else 0 and a failure.
  std::size_t length(std::size_t bytes_each, std::size_t max) {
    std::uint32_t size = 0;
    get(size);
    if (failed()) return 0;
    if (size > max) return fail("a length is over its limit"), 0;
    if (bytes_each > 0 && size > remaining() / bytes_each) return fail("a length is beyond the input"), 0;
    return size;
  }

  template <class E>
  void get_vector(std::vector<E>& x) {
    constexpr std::size_t each = detail::least_bytes<E>();
    static_assert(each > 0, "elements without bytes would make any length believable");
    const std::size_t size = length(each, vector_elements_max);
    x.clear();
    x.reserve(size);
    for (std::size_t i = 0; i < size && !failed(); ++i) get(x.emplace_back());
  }

  template <class V, std::size_t... I>
  void get_variant(V& x, std::index_sequence<I...>) {
    std::uint8_t index = 0;
    get(index);
    if (failed()) return;
    if (index >= sizeof...(I)) return fail("a variant's index is out of range");
    ((index == I ? get(x.template emplace<I>()) : void()), ...);
  }

  void raw(void* data, std::size_t size) {
    if (size > remaining()) return fail("the input ends too early");
    if (size > 0) std::memcpy(data, bytes_.data() + position_, size);
    position_ += size;
  }

  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  const char* why_ = nullptr;
  bool is_foreign_ = false;
};

// Writes the layout of a type as text, for the fingerprint: a change of any field's type or order shows.
template <class T>
void describe(std::string& out) {
  if constexpr (detail::is_ordinal<T>) {
    describe<typename T::rep>(out);
  } else if constexpr (std::is_enum_v<T>) {
    out += 'e' + std::to_string(static_cast<unsigned>(last_of<T>));
  } else if constexpr (std::is_same_v<T, bool>) {
    out += 'b';
  } else if constexpr (std::is_arithmetic_v<T>) {
    out += (std::is_floating_point_v<T> ? 'f'
            : std::is_signed_v<T>       ? 'i'
                                        : 'u') +
           std::to_string(8 * sizeof(T));
  } else if constexpr (std::is_same_v<T, std::string>) {
    out += 's';
  } else if constexpr (detail::is_byte_array<T>) {
    out += 'a' + std::to_string(sizeof(T));
  } else if constexpr (detail::is_a<T, std::vector>) {
    out += '[';
    describe<typename T::value_type>(out);
    out += ']';
  } else if constexpr (detail::is_a<T, std::optional>) {
    out += '?';
    describe<typename T::value_type>(out);
  } else if constexpr (detail::is_a<T, std::variant>) {
    out += '<';
    [&]<class... Ts>(std::type_identity<std::variant<Ts...>>) {
      ((describe<Ts>(out), out += '|'), ...);
    }(std::type_identity<T>{});
    out += '>';
  } else {
    out += '(';
    std::apply([&]<class... M>(
                   M...) { (describe<std::remove_cvref_t<decltype(std::declval<T&>().*M{})>>(out), ...); },
               fields_of<T>);
    out += ')';
  }
}

template <class T>
std::vector<std::byte> encode(const T& x) {
  std::vector<std::byte> bytes;
  bytes.reserve(256);
  writer(bytes).put(x);
  return bytes;
}

// `what` names the thing in the error.
template <class T>
result<T> decode(std::span<const std::byte> bytes, const char* what) {
  T x{};
  reader source(bytes);
  source.get(x);
  if (!source.failed() && source.remaining() > 0) source.fail("there are bytes left over");
  if (!source.failed()) return x;
  return error{errc::corrupt, std::string("cannot read ") + what + ": " + source.why() + " (byte " +
                                  std::to_string(source.position()) + " of " + std::to_string(bytes.size()) +
                                  ")"};
}

}  // namespace perdura::wire
