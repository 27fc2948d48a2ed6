// The bytes under a link. Plain TCP, and therefore loopback only: when the cluster has certificates, `stream`
// becomes asio::ssl::stream over this socket; greeter and session use nothing of it but async reads, writes
// and close.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <string>

#include "actors/base/control.hpp"
#include "actors/base/result.hpp"

namespace perdura::transport {

namespace asio = boost::asio;
using stream = asio::ip::tcp::socket;

// The address to bind or dial. Refused off loopback; invalid when the host is no IP address (or "localhost").
result<asio::ip::tcp::endpoint> loopback_endpoint(const endpoint& where, const std::string& purpose);

// No delay, closed on exec, and broken when the machine on the other side is silent for `vanish` (0: never).
// That includes a peer that lives but reads nothing for so long while bytes wait for it.
void prepare(stream& s, std::chrono::milliseconds vanish);

void close_on_exec(int descriptor);

// Why a read or a write failed, for people.
std::string reason_of(const boost::system::error_code& failure);

}  // namespace perdura::transport
