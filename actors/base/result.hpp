// What can go wrong is a value; what cannot is a check (check.hpp).
#pragma once

#include <string>
#include <utility>
#include <variant>

#include "actors/base/check.hpp"

namespace perdura {

enum class errc : unsigned char {
  ok = 0,
  invalid_argument,  // the caller's input names a field and what is allowed
  not_found,
  already_exists,  // put-if-absent lost
  corrupt,         // a hash, a checksum or a format did not fit
  io,              // the operating system refused
  unavailable,     // the other side cannot be reached, or not now
  timeout,
  refused,  // fenced, wrong term, wrong role
  version_mismatch,
  exhausted,  // a named limit was reached
  internal,
};

const char* to_string(errc code);

// One line a person can act on: what was attempted, on what, why it failed, what to do.
struct error {
  errc code = errc::internal;
  std::string message;
};

template <class T>
class [[nodiscard]] result {
 public:
  result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  result(error e) : state_(std::in_place_index<1>, std::move(e)) {}

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & {
    PERDURA_CHECK(has_value(), failure().message.c_str());
    return std::get<0>(state_);
  }
  const T& value() const& {
    PERDURA_CHECK(has_value(), failure().message.c_str());
    return std::get<0>(state_);
  }
  T&& value() && {
    PERDURA_CHECK(has_value(), failure().message.c_str());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const error& failure() const {
    PERDURA_CHECK(!has_value(), "failure() of a result that holds a value");
    return std::get<1>(state_);
  }

 private:
  std::variant<T, error> state_;
};

template <>
class [[nodiscard]] result<void> {
 public:
  result() = default;
  result(error e) : error_(std::move(e)), failed_(true) {}
  bool has_value() const { return !failed_; }
  explicit operator bool() const { return !failed_; }
  void value() const { PERDURA_CHECK(!failed_, error_.message.c_str()); }
  const error& failure() const {
    PERDURA_CHECK(failed_, "failure() of a result that holds a value");
    return error_;
  }

 private:
  error error_{errc::ok, {}};
  bool failed_ = false;
};

}  // namespace perdura
