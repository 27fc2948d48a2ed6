#include "coordinator/console/session.hpp"

#include "coordinator/admin/client.hpp"

namespace perdura::console {

namespace {
// The server may have dropped a client that was silent: look before it is used again.
constexpr std::chrono::seconds trusted_for{2};
}  // namespace

result<admin::admin_api*> session::open() {
  const auto now = clock::now();
  if (api_ && now - used_ > trusted_for && !api_->status()) api_.reset();
  if (!api_) {
    admin::client_options options;
    options.tls = tls_;
    auto connected = admin::connect(to_.host, to_.port, options);
    if (!connected) {
      auto e = connected.failure();
      if (e.code == errc::unavailable)
        e.message +=
            "; start one with \"perdura up\" or \"perdura coordinator\", or name another with --admin "
            "HOST:PORT";
      return e;
    }
    api_ = std::move(*connected);
  }
  used_ = now;
  return api_.get();
}

}  // namespace perdura::console
