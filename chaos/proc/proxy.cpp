#include "chaos/proc/proxy.hpp"

#include <algorithm>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <deque>
#include <list>
#include <random>
#include <thread>
#include <vector>

#include "chaos/proc/process.hpp"

namespace perdura::chaos {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using clock = std::chrono::steady_clock;

constexpr std::size_t read_bytes = 16U << 10;
constexpr std::size_t under_way_max = 4U << 20;  // of one direction

// One direction of one connection.
struct pump {
  pump(tcp::socket& a, tcp::socket& b) : from(a), to(b), due(a.get_executor()) {}
  tcp::socket& from;
  tcp::socket& to;
  asio::steady_timer due;
  std::vector<char> in = std::vector<char>(read_bytes);
  std::deque<std::pair<clock::time_point, std::vector<char>>> under_way;
  std::size_t bytes = 0;
  bool reading = false;
  bool writing = false;
  bool ended = false;  // nothing more comes
};

struct connection : std::enable_shared_from_this<connection> {
  explicit connection(tcp::socket a) : left(std::move(a)), right(left.get_executor()) {}
  tcp::socket left;
  tcp::socket right;
  pump there{left, right};
  pump back{right, left};
  bool over = false;
};

}  // namespace

struct proxy::state {
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  tcp::endpoint target;
  line quality;
  std::mt19937_64 random;
  std::list<std::shared_ptr<connection>> open;
  std::atomic<std::uint64_t> lost{0};
  std::atomic<std::uint64_t> connections{0};
  std::thread thread;

  void accept() {
    acceptor.async_accept([this](error_code failed, tcp::socket s) {
      if (failed) return;
      ++connections;
      auto c = std::make_shared<connection>(std::move(s));
      open.push_back(c);
      c->right.async_connect(target, [this, c](error_code refused) {
        if (refused || c->over) return end(*c);
        for (auto* socket : {&c->left, &c->right}) socket->set_option(tcp::no_delay(true));
        read(c, c->there);
        read(c, c->back);
      });
      accept();
    });
  }

  void end(connection& c) {
    if (c.over) return;
    c.over = true;
    error_code ignored;
    for (auto* p : {&c.there, &c.back}) p->due.cancel();
    c.left.close(ignored);
    c.right.close(ignored);
    open.remove_if([&](const auto& o) { return o.get() == &c; });
  }

  void read(const std::shared_ptr<connection>& c, pump& p) {
    if (p.reading || p.ended || p.bytes > under_way_max) return;
    p.reading = true;
    p.from.async_read_some(asio::buffer(p.in), [this, c, &p](error_code failed, std::size_t n) {
      p.reading = false;
      if (c->over) return;
      p.ended = static_cast<bool>(failed);
      if (n > 0) take(p, n);
      write(c, p);
      read(c, p);
    });
  }

  void take(pump& p, std::size_t n) {
    auto at = clock::now() + quality.delay;
    if (std::uniform_real_distribution<double>(0, 1)(random) < quality.loss) {
      ++lost;
      at += quality.again;
    }
    // In order: what comes behind a lost packet waits for it.
    if (!p.under_way.empty()) at = std::max(at, p.under_way.back().first);
    p.under_way.emplace_back(at,
                             std::vector<char>(p.in.begin(), p.in.begin() + static_cast<std::ptrdiff_t>(n)));
    p.bytes += n;
  }

  void write(const std::shared_ptr<connection>& c, pump& p) {
    if (p.writing || c->over) return;
    if (p.under_way.empty()) {
      if (p.ended) end(*c);
      return;
    }
    p.writing = true;
    p.due.expires_at(p.under_way.front().first);
    p.due.async_wait([this, c, &p](error_code stopped) {
      if (stopped || c->over) return;
      asio::async_write(p.to, asio::buffer(p.under_way.front().second),
                        [this, c, &p](error_code failed, std::size_t n) {
                          p.writing = false;
                          if (failed) return end(*c);
                          p.bytes -= n;
                          p.under_way.pop_front();
                          write(c, p);
                          if (!c->over) read(c, p);
                        });
    });
  }
};

proxy::proxy(const endpoint& target, const line& quality, const std::string& host)
    : state_(std::make_shared<state>()) {
  auto& s = *state_;
  s.quality = quality;
  s.random.seed(quality.seed);
  try {
    s.target = {asio::ip::make_address(target.host), target.port};
    const tcp::endpoint here(asio::ip::make_address(host), 0);
    s.acceptor.open(here.protocol());
    s.acceptor.bind(here);
    s.acceptor.listen();
  } catch (const boost::system::system_error& e) { throw failure(std::string("no proxy: ") + e.what()); }
  s.accept();
  s.thread = std::thread([&s] { s.io.run(); });
}

proxy::~proxy() {
  state_->io.stop();
  state_->thread.join();
}

endpoint proxy::local() const {
  const auto at = state_->acceptor.local_endpoint();
  return {at.address().to_string(), at.port()};
}

void proxy::break_all() {
  asio::post(state_->io, [s = state_] {
    for (const auto open = s->open; const auto& c : open) s->end(*c);
  });
}

std::uint64_t proxy::lost() const { return state_->lost; }
std::uint64_t proxy::connections() const { return state_->connections; }

}  // namespace perdura::chaos
