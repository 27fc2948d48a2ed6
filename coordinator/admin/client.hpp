// The admin protocol's client: admin_api from another process. Calls block, each under a deadline. A client
// is used by the thread that made it; when its connection is lost every call says unavailable: connect again.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "actors/tls/identity.hpp"
#include "coordinator/admin/service.hpp"

namespace perdura::admin {

struct client_options {
  std::chrono::milliseconds connect_timeout{3000};
  std::chrono::milliseconds call_timeout{15000};  // and what events are held, on top
  std::string name = "perdura";
  tls::identity_ptr tls{};  // an admin's, where the cluster has certificates
};

// Errors: nobody listens there (unavailable), it does not answer (timeout), it speaks another version.
result<std::unique_ptr<admin_api>> connect(const std::string& host, std::uint16_t port,
                                           const client_options& options = {});

}  // namespace perdura::admin
