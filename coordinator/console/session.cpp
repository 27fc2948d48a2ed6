#include "coordinator/console/session.hpp"

#include <charconv>

#include "coordinator/admin/client.hpp"

namespace perdura::console {

namespace {
// The server may have dropped a client that was silent: look before it is used again.
constexpr std::chrono::seconds trusted_for{2};
}  // namespace

result<endpoint> parse_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const error wrong{errc::invalid_argument,
                    "\"" + text + "\" is no address: expected HOST:PORT, as " + default_admin};
  if (colon == std::string::npos || colon == 0) return wrong;
  endpoint e{text.substr(0, colon), 0};
  if (e.host.front() == '[' && e.host.back() == ']') e.host = e.host.substr(1, e.host.size() - 2);
  const auto* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data() + colon + 1, end, e.port);
  if (failed != std::errc{} || stop != end || e.port == 0 || e.host.empty()) return wrong;
  return e;
}

result<admin::admin_api*> session::open() {
  const auto now = clock::now();
  if (api_ && now - used_ > trusted_for && !api_->status()) api_.reset();
  if (!api_) {
    auto connected = admin::connect(to_.host, to_.port);
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
