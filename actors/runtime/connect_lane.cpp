#include "actors/runtime/connect_lane.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <caf/io/middleman.hpp>
#include <caf/scoped_actor.hpp>
#include <cerrno>
#include <cstring>
#include <memory>

#include "actors/base/log.hpp"
#include "actors/runtime/system.hpp"
#include "actors/wire/compat.hpp"

namespace perdura::runtime {

namespace {
std::string name_of(const endpoint& at) { return at.host + ":" + std::to_string(at.port); }

error unreachable(const endpoint& at, const std::string& why) {
  return {errc::unavailable, "cannot reach " + name_of(at) + ": " + why};
}

// 0 or an errno, within the time.
int connect_within(const addrinfo& address, std::chrono::milliseconds timeout) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno;
  int failure = 0;
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) {
    failure = errno;
    if (failure == EINPROGRESS) {
      pollfd ready{fd, POLLOUT, 0};
      socklen_t size = sizeof failure;
      if (::poll(&ready, 1, static_cast<int>(timeout.count())) != 1)
        failure = ETIMEDOUT;
      else
        ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size);
    }
  }
  ::close(fd);
  return failure;
}
}  // namespace

result<void> probe_tcp(const endpoint& at, std::chrono::milliseconds timeout) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int code = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
      code != 0)
    return unreachable(at, std::string(::gai_strerror(code)) + "; is the name spelt right?");
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
  int failure = ETIMEDOUT;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    failure = connect_within(*a, timeout);
    if (failure == 0) return {};
  }
  return unreachable(at, std::strerror(failure));
}

connect_lane::connect_lane(caf::actor_system& system, std::set<std::string> interface, endpoint to,
                           back_off pace, report done)
    : system_(system),
      interface_(std::move(interface)),
      to_(std::move(to)),
      pace_(pace),
      done_(std::move(done)),
      thread_([this] { run(); }) {}

connect_lane::~connect_lane() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void connect_lane::connect() {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void connect_lane::run() {
  auto pause = pace_.first;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return wanted_ || stopping_; });
    if (stopping_) return;
    lock.unlock();
    auto outcome = attempt();
    const bool connected = outcome.has_value();
    lock.lock();
    // Before the report: whoever hears of the connection may lose it and ask again at once.
    if (connected) wanted_ = false;
    lock.unlock();
    done_(std::move(outcome));
    lock.lock();
    if (connected) {
      pause = pace_.first;
      continue;
    }
    changed_.wait_for(lock, pause, [this] { return stopping_; });
    pause = std::min(pause * 2, pace_.longest);
  }
}

result<caf::strong_actor_ptr> connect_lane::attempt() {
  if (auto reachable = probe_tcp(to_, pace_.probe_timeout); !reachable) return reachable.failure();
  result<caf::strong_actor_ptr> outcome = unreachable(to_, "no answer");
  caf::scoped_actor self{system_};
  self->request(connector(system_), pace_.handshake_timeout, caf::connect_atom_v, to_.host, to_.port)
      .receive(
          [&](const caf::node_id&, caf::strong_actor_ptr actor, const std::set<std::string>& offered) {
            if (actor == nullptr)
              outcome = unreachable(to_, "it offers no service; is this the coordinator's port?");
            else if (!system_.assignable(interface_, offered))
              outcome = error{errc::version_mismatch,
                              "cannot use " + name_of(to_) +
                                  ": it offers another service or another release's; is this "
                                  "the coordinator's port, and of the same release?"};
            else
              outcome = std::move(actor);
          },
          [&](const caf::error& e) { outcome = unreachable(to_, system_.render(e)); });
  return outcome;
}

}  // namespace perdura::runtime
