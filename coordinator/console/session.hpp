// The way to a coordinator: connects when first needed, and again after the connection was lost.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actors/base/control.hpp"
#include "actors/tls/identity.hpp"
#include "coordinator/admin/service.hpp"

namespace perdura::console {

inline constexpr const char* default_admin = "127.0.0.1:7401";

// "HOST:PORT", "[::1]:PORT".

class session {
 public:
  // `tls`: an admin's, or null for a cluster without certificates.
  explicit session(endpoint to, tls::identity_ptr tls = nullptr) : to_(std::move(to)), tls_(std::move(tls)) {}

  // Errors say how to start a coordinator. Valid until the next call.
  result<admin::admin_api*> open();
  void close() { api_.reset(); }
  const endpoint& to() const { return to_; }

 private:
  using clock = std::chrono::steady_clock;
  endpoint to_;
  tls::identity_ptr tls_;
  std::unique_ptr<admin::admin_api> api_;
  clock::time_point used_{};
};

}  // namespace perdura::console
