// Our messages as CAF sees them: a name, and bytes that only our own codec reads (archive.hpp says why).
#pragma once

#include <caf/meta/type_name.hpp>
#include <caf/sec.hpp>
#include <caf/type_id.hpp>
#include <concepts>
#include <string>
#include <type_traits>

#include "actors/wire/codec.hpp"

#define X(type) CAF_ADD_TYPE_ID(perdura, (perdura::type))
CAF_BEGIN_TYPE_ID_BLOCK(perdura, caf::first_custom_type_id)
PERDURA_WIRE_MESSAGES(X)
CAF_END_TYPE_ID_BLOCK(perdura)
#undef X

namespace perdura {

namespace wire {
template <class T>
inline constexpr bool is_message = false;
#define X(type) \
  template <>   \
  inline constexpr bool is_message<type> = true;
PERDURA_WIRE_MESSAGES(X)
#undef X

#define X(type) extern template std::string encode_message(const type&);
PERDURA_WIRE_MESSAGES(X)
#undef X

// False, counted and logged, when the bytes are no T. CAF 0.17 then delivers an empty message, which no
// handler takes.
template <class T>
bool accept_message(const std::string& bytes, T& into);
#define X(type) extern template bool accept_message(const std::string&, type&);
PERDURA_WIRE_MESSAGES(X)
#undef X
// Messages from peers that could not be read since the process started.
std::uint64_t unreadable_messages();
}  // namespace wire

template <class Inspector, class T>
requires wire::is_message<T>
typename Inspector::result_type inspect(Inspector& f, T& x) {
  if constexpr (std::is_void_v<typename Inspector::result_type>) {
    // CAF asks for text; the name does.
    f(caf::meta::type_name(caf::type_name<T>::value));
  } else if constexpr (Inspector::reads_state) {
    std::string bytes = wire::encode_message(x);
    return f(bytes);
  } else {
    std::string bytes;
    if (auto failure = f(bytes)) return failure;
    if (wire::accept_message(bytes, x)) return caf::none;
    return caf::sec::invalid_argument;
  }
}

}  // namespace perdura
