#include "actors/runtime/host.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace perdura::runtime {
namespace {

// Connecting a UDP socket chooses route and address, and sends nothing.
std::string chosen_address(const addrinfo& to) {
  const int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage mine{};
  socklen_t size = sizeof mine;
  char text[NI_MAXHOST] = "";
  if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&mine), &size) == 0)
    ::getnameinfo(reinterpret_cast<sockaddr*>(&mine), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const int failure = errno;
  ::close(fd);
  errno = failure;
  return text;
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

result<void> check_host(const std::string& host, bool has_tls) {
  if (has_tls || is_loopback(host)) return {};
  return error{errc::refused,
               "\"" + host +
                   "\" is refused: beyond loopback (127.0.0.1) the cluster's certificates are needed, for "
                   "without them anybody could give it orders; make them with `perdura pki` and set "
                   "tls_folder"};
}

result<std::string> local_address_towards(const endpoint& to) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(to.host.c_str(), std::to_string(to.port).c_str(), &hints, &found);
      code != 0)
    return error{errc::unavailable, "cannot find " + to.host + ": " + ::gai_strerror(code)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  for (const auto* a = found; a != nullptr; a = a->ai_next)
    if (auto address = chosen_address(*a); !address.empty()) return address;
  return error{errc::unavailable, "there is no way from here to " + to.host + ": " + std::strerror(errno) +
                                      "; name this machine's address with --host"};
}

}  // namespace perdura::runtime
