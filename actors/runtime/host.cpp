#include "actors/runtime/host.hpp"

namespace perdura::runtime {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

result<void> check_host(const std::string& host) {
  if (is_loopback(host)) return {};
  return error{errc::refused,
               "\"" + host +
                   "\" is refused: only loopback (127.0.0.1) until the cluster has its certificates, for "
                   "without them anybody could give it orders; tunnel the port meanwhile"};
}

}  // namespace perdura::runtime
