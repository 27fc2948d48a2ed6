// What a link costs over the loopback socket that it is made of: one-way throughput of large messages, and
// the round trip of a small one, each beside plain blocking sockets in the same run. Best of several
// repetitions, as neighbours on the machine only ever slow things down.
//   link_bench [REPETITIONS]   (default: 7)
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "actors/transport/stream.hpp"
#include "actors/transport/tcp_links.hpp"

namespace {

using namespace perdura;
using namespace perdura::transport;
using clock_type = std::chrono::steady_clock;

constexpr std::size_t body_bytes = 256U << 10;
constexpr std::size_t head_bytes = 100;
constexpr int messages = 4000;  // 1 GiB
constexpr int round_trips = 3000;
constexpr double asked_gb_per_s = 1.5;
constexpr double asked_round_trip_us = 60;

const incarnation low{0, 1};
const incarnation high{0, 2};

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

double median(std::vector<double> v) {
  std::nth_element(v.begin(), v.begin() + static_cast<std::ptrdiff_t>(v.size() / 2), v.end());
  return v[v.size() / 2];
}

struct figures {
  double gb_per_s = 0;
  double round_trip_us = 1e9;
  void keep_better(const figures& f) {
    gb_per_s = std::max(gb_per_s, f.gb_per_s);
    round_trip_us = std::min(round_trip_us, f.round_trip_us);
  }
};

// ---- links
// -------------------------------------------------------------------------------------------------

struct end {
  end(const incarnation& self, std::function<void(end&, message)> on_message) {
    tcp_options o;
    o.self = self;
    o.send_queue_bytes = 8U << 20;
    links = make_tcp_links(o, {.up = [this](incarnation, std::uint64_t) { up.release(); },
                               .down = [](incarnation, std::uint64_t, const std::string&) {},
                               .received = [this, on_message](incarnation, std::uint64_t,
                                                              message m) { on_message(*this, std::move(m)); },
                               .writable = [this](incarnation) { writable.release(); }})
                .value();
  }
  std::binary_semaphore up{0};
  std::binary_semaphore writable{0};
  std::counting_semaphore<> done{0};
  int received = 0;
  std::unique_ptr<transport::links> links;
};

figures measure_links() {
  end a(low, [](end& self, message) { self.done.release(); });
  end b(high, [](end& self, message m) {
    if (m.body.empty()) {
      self.links->send(low, std::move(m));
    } else if (++self.received == messages) {
      self.done.release();
    }
  });
  a.links->set_peers({{high, b.links->local()}});
  b.links->set_peers({{low, a.links->local()}});
  a.up.acquire();
  b.up.acquire();

  figures f;
  const blob body = blob::take(std::vector<std::byte>(body_bytes, std::byte{7}));
  auto begin = clock_type::now();
  for (int i = 0; i < messages; ++i) {
    message m{std::vector<std::byte>(head_bytes), body};
    while (a.links->send(high, std::move(m)) == send_status::would_block) a.writable.acquire();
  }
  b.done.acquire();
  f.gb_per_s = static_cast<double>(messages) * body_bytes / seconds_since(begin) * 1e-9;

  std::vector<double> times;
  for (int i = 0; i < round_trips; ++i) {
    begin = clock_type::now();
    a.links->send(high, message{std::vector<std::byte>(head_bytes), {}});
    a.done.acquire();
    times.push_back(seconds_since(begin) * 1e6);
  }
  f.round_trip_us = median(std::move(times));
  a.links->close();
  b.links->close();
  return f;
}

// ---- plain sockets
// -----------------------------------------------------------------------------------------

void write_all(int descriptor, const std::byte* data, std::size_t size) {
  while (size > 0) {
    const auto n = ::send(descriptor, data, size, MSG_NOSIGNAL);
    if (n <= 0) std::exit(1);
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

void read_all(int descriptor, std::byte* data, std::size_t size) {
  while (size > 0) {
    const auto n = ::recv(descriptor, data, size, 0);
    if (n <= 0) std::exit(1);
    data += n;
    size -= static_cast<std::size_t>(n);
  }
}

figures measure_plain_sockets() {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  stream::socket a(io);
  a.connect(acceptor.local_endpoint());
  stream::socket b = acceptor.accept();
  a.set_option(asio::ip::tcp::no_delay(true));
  b.set_option(asio::ip::tcp::no_delay(true));
  const int out = a.native_handle();
  const int in = b.native_handle();
  std::thread receiver([in] {
    std::vector<std::byte> buffer(body_bytes);
    for (int i = 0; i < messages; ++i) read_all(in, buffer.data(), body_bytes);
    for (int i = 0; i <= round_trips; ++i) {
      write_all(in, buffer.data(), head_bytes);
      if (i < round_trips) read_all(in, buffer.data(), head_bytes);
    }
  });
  figures f;
  std::vector<std::byte> buffer(body_bytes, std::byte{7});
  auto begin = clock_type::now();
  for (int i = 0; i < messages; ++i) write_all(out, buffer.data(), body_bytes);
  read_all(out, buffer.data(), head_bytes);
  f.gb_per_s = static_cast<double>(messages) * body_bytes / seconds_since(begin) * 1e-9;
  std::vector<double> times;
  for (int i = 0; i < round_trips; ++i) {
    begin = clock_type::now();
    write_all(out, buffer.data(), head_bytes);
    read_all(out, buffer.data(), head_bytes);
    times.push_back(seconds_since(begin) * 1e6);
  }
  receiver.join();
  f.round_trip_us = median(std::move(times));
  return f;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown processor";
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 7;
  std::printf(
      "machine: %s, %u cores; best of %d; %d messages of %zu KiB; median of %d round trips of %zu bytes\n",
      processor().c_str(), std::thread::hardware_concurrency(), repetitions, messages, body_bytes >> 10,
      round_trips, head_bytes);
  figures links;
  figures plain;
  for (int i = 0; i < repetitions; ++i) {
    links.keep_better(measure_links());
    plain.keep_better(measure_plain_sockets());
  }
  const auto verdict = [](bool ok) { return ok ? "ok" : "short"; };
  std::printf("link.throughput: %.2f GB/s (asked: > %.1f) %s\n", links.gb_per_s, asked_gb_per_s,
              verdict(links.gb_per_s > asked_gb_per_s));
  std::printf("link.round_trip: %.0f us (asked: < %.0f) %s\n", links.round_trip_us, asked_round_trip_us,
              verdict(links.round_trip_us < asked_round_trip_us));
  std::printf("link.throughput_to_plain_sockets: %.2f (plain: %.2f GB/s)\n", links.gb_per_s / plain.gb_per_s,
              plain.gb_per_s);
  std::printf("link.round_trip_to_plain_sockets: %.2f (plain: %.0f us)\n",
              links.round_trip_us / plain.round_trip_us, plain.round_trip_us);
}
