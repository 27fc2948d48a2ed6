#include "actors/transport/tcp_links.hpp"

#include <openssl/rand.h>
#include <pthread.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <random>
#include <thread>
#include <unordered_map>
#include <utility>

#include "actors/base/log.hpp"
#include "actors/transport/greeter.hpp"
#include "actors/transport/session.hpp"

namespace perdura::transport {
namespace {

using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr int listen_backlog = 128;
constexpr milliseconds accept_pause{50};  // after the process ran out of descriptors
constexpr unsigned refusal_lines_per_second_max = 10;

class tcp_links final : public links, public greeter::owner, public session::owner {
 public:
  tcp_links(tcp_options options, link_events events);
  ~tcp_links() override { close(); }

  result<void> open();

  endpoint local() const override { return local_; }
  void set_peers(std::vector<peer> peers) override;
  send_status send(const incarnation& to, std::uint64_t session, message&& m) override;
  void close() override;

 private:
  struct named_peer {
    explicit named_peer(asio::io_context& io) : retry(io) {}
    endpoint where;
    std::shared_ptr<session> link;
    std::shared_ptr<greeter> dialing;
    asio::steady_timer retry;
    milliseconds back_off{0};
    steady_clock::time_point up_since;
    std::string last_failure;
  };

  // ---- greeter::owner and session::owner
  void greeted(const std::shared_ptr<greeter>& g) override;
  void failed(const std::shared_ptr<greeter>& g, const std::string& why) override;
  void arrived(session& s, message m) override { events_.received(s.peer(), s.number(), std::move(m)); }
  void has_room(session& s) override { events_.writable(s.peer()); }
  void broke(session& s, const std::string& why) override;

  void accept();
  void adopt_peers(const std::vector<peer>& peers);
  void forget(named_peer& p);
  void dial(const incarnation& who, named_peer& p);
  void dial_later(const incarnation& who, named_peer& p);
  void park(const std::shared_ptr<greeter>& g);
  void admit(const std::shared_ptr<greeter>& g, named_peer& p);
  void drop_link(named_peer& p, const std::string& why);
  void note_dial_failure(const incarnation& who, named_peer& p, const std::string& why);
  void note_refusal(const std::string& line);
  nonce fresh_nonce();

  const tcp_options options_;
  const link_events events_;
  std::unique_ptr<asio::ssl::context> tls_;  // before io_: streams that end with it use it
  asio::io_context io_{1};
  asio::ip::tcp::acceptor acceptor_{io_};
  asio::steady_timer accept_timer_{io_};
  endpoint local_;
  std::thread thread_;

  // The links' thread only.
  std::map<incarnation, named_peer> peers_;
  std::vector<std::shared_ptr<greeter>> shaking_;  // incoming, oldest first
  std::vector<std::shared_ptr<greeter>> parked_;   // likewise
  std::uint64_t last_session_ = links::any_session;
  std::minstd_rand jitter_;
  steady_clock::time_point refusals_since_;
  unsigned refusals_ = 0;

  // What `send` sees, from any thread.
  std::mutex up_mutex_;
  std::unordered_map<incarnation, std::shared_ptr<session>> up_;

  std::mutex close_mutex_;
};

tcp_links::tcp_links(tcp_options options, link_events events)
    : options_(std::move(options)),
      events_(std::move(events)),
      jitter_(static_cast<std::minstd_rand::result_type>(options_.self.low ^ options_.self.high)) {}

result<void> tcp_links::open() {
  auto where = endpoint_of({options_.host, options_.port}, "listen for links on", options_.tls != nullptr);
  if (!where) return where.failure();
  if (options_.tls) {
    auto made = make_tls_context(*options_.tls);
    if (!made) return made.failure();
    tls_ = std::move(*made);
  }
  error_code failure;
  acceptor_.open(where->protocol(), failure);
  if (!failure) {
    close_on_exec(acceptor_.native_handle());
    acceptor_.set_option(asio::socket_base::reuse_address(true), failure);
    acceptor_.bind(*where, failure);
  }
  if (!failure) acceptor_.listen(listen_backlog, failure);
  if (failure)
    return error{errc::io, "cannot listen for links on " + options_.host + ":" +
                               std::to_string(options_.port) + ": " + failure.message()};
  local_ = {options_.host, acceptor_.local_endpoint().port()};
  accept();
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "links");
    io_.run();
  });
  return {};
}

void tcp_links::close() {
  std::lock_guard once(close_mutex_);
  if (!thread_.joinable()) return;
  PERDURA_CHECK(thread_.get_id() != std::this_thread::get_id(),
                "an event handler may not close its own links");
  io_.stop();
  thread_.join();
  error_code ignored;
  acceptor_.close(ignored);
  for (auto& [who, p] : peers_) {
    if (p.link) p.link->stop();
    if (p.dialing) p.dialing->abandon();
  }
  for (const auto& g : shaking_) g->abandon();
  for (const auto& g : parked_) g->abandon();
  std::lock_guard lock(up_mutex_);
  up_.clear();
}

send_status tcp_links::send(const incarnation& to, std::uint64_t number, message&& m) {
  PERDURA_CHECK(m.head.size() <= head_bytes_max && m.body.size() <= body_bytes_max,
                "messages keep to the limits");
  std::shared_ptr<session> link;
  {
    std::lock_guard lock(up_mutex_);
    const auto found = up_.find(to);
    if (found == up_.end()) return send_status::not_connected;
    link = found->second;
  }
  if (number != any_session && number != link->number()) return send_status::not_connected;
  return link->send(std::move(m));
}

void tcp_links::set_peers(std::vector<peer> peers) {
  asio::post(io_, [this, peers = std::move(peers)] { adopt_peers(peers); });
}

// ---- whom to hold links to
// ---------------------------------------------------------------------------------

void tcp_links::adopt_peers(const std::vector<peer>& peers) {
  std::map<incarnation, endpoint> named;
  for (const auto& p : peers) {
    if (p.who == options_.self || p.who.is_none()) continue;
    if (named.size() == peers_max) {
      log::error("links: more than " + std::to_string(peers_max) + " peers are named; the rest get no link");
      break;
    }
    named[p.who] = p.link;
  }
  for (auto at = peers_.begin(); at != peers_.end();) {
    if (named.contains(at->first)) {
      ++at;
      continue;
    }
    forget(at->second);
    at = peers_.erase(at);
  }
  for (const auto& [who, where] : named) {
    auto [at, is_new] = peers_.try_emplace(who, io_);
    auto& p = at->second;
    const bool moved = p.where != where;
    p.where = where;
    if (options_.self < who) {
      if (moved && p.dialing) p.dialing->abandon();
      if (is_new || (moved && !p.link)) dial(who, p);
      continue;
    }
    const auto waits =
        std::find_if(parked_.begin(), parked_.end(), [&](const auto& g) { return g->peer() == who; });
    if (waits == parked_.end()) continue;
    const auto g = *waits;
    parked_.erase(waits);
    admit(g, p);
  }
}

void tcp_links::forget(named_peer& p) {
  p.retry.cancel();
  if (p.dialing) p.dialing->abandon();
  drop_link(p, "this process was told to let the link go");
}

// ---- dialing
// -----------------------------------------------------------------------------------------------

void tcp_links::dial(const incarnation& who, named_peer& p) {
  p.retry.cancel();
  const auto where = endpoint_of(p.where, "dial a peer at", tls_ != nullptr);
  if (!where || where->port() == 0) {
    note_dial_failure(who, p, where ? "its port is 0" : where.failure().message);
    return dial_later(who, p);
  }
  p.dialing =
      std::make_shared<greeter>(stream(stream::socket(io_), tls_.get()),
                                handshake::of_dialer(options_.self, who, options_.cookie, fresh_nonce()),
                                *this, options_.vanish_timeout);
  // The other side may wait to be told of us before it welcomes us.
  p.dialing->dial(*where, options_.handshake_timeout + options_.parking_timeout);
}

void tcp_links::dial_later(const incarnation& who, named_peer& p) {
  p.back_off = std::clamp(p.back_off * 2, options_.redial_first, options_.redial_max);
  const auto tenths = std::uniform_int_distribution<int>(8, 12)(jitter_);
  p.retry.expires_after(std::chrono::microseconds(p.back_off) * tenths / 10);
  p.retry.async_wait([this, who](error_code failure) {
    const auto at = peers_.find(who);
    if (failure || at == peers_.end() || at->second.link || at->second.dialing) return;
    dial(who, at->second);
  });
}

void tcp_links::note_dial_failure(const incarnation& who, named_peer& p, const std::string& why) {
  if (p.last_failure == why) return;
  p.last_failure = why;
  log::warn("links: no link to " + short_name(who) + " at " + p.where.host + ":" +
            std::to_string(p.where.port) + ": " + why + "; dialing on");
}

// ---- incoming
// ----------------------------------------------------------------------------------------------

void tcp_links::accept() {
  acceptor_.async_accept([this](error_code failure, stream::socket s) {
    if (failure == asio::error::operation_aborted) return;
    if (failure) {
      note_refusal("cannot accept a connection: " + failure.message());
      accept_timer_.expires_after(accept_pause);
      accept_timer_.async_wait([this](error_code stopped) {
        if (!stopped) accept();
      });
      return;
    }
    if (shaking_.size() >= options_.handshakes_max) {
      shaking_.front()->abandon();
      shaking_.erase(shaking_.begin());
      note_refusal("more than " + std::to_string(options_.handshakes_max) +
                   " connections at once are shaking hands; the oldest was closed");
    }
    shaking_.push_back(
        std::make_shared<greeter>(stream(std::move(s), tls_.get()),
                                  handshake::of_acceptor(options_.self, options_.cookie, fresh_nonce()),
                                  *this, options_.vanish_timeout));
    shaking_.back()->answer(options_.handshake_timeout);
    accept();
  });
}

void tcp_links::greeted(const std::shared_ptr<greeter>& g) {
  std::erase(shaking_, g);
  const auto at = peers_.find(g->peer());
  if (at != peers_.end()) return admit(g, at->second);
  if (g->is_dialer()) return g->abandon();
  park(g);
}

void tcp_links::park(const std::shared_ptr<greeter>& g) {
  auto older =
      std::find_if(parked_.begin(), parked_.end(), [&](const auto& p) { return p->peer() == g->peer(); });
  if (older == parked_.end() && parked_.size() >= options_.parked_max) older = parked_.begin();
  if (older != parked_.end()) {
    (*older)->abandon();
    parked_.erase(older);
  }
  parked_.push_back(g);
  g->park(options_.parking_timeout);
}

void tcp_links::failed(const std::shared_ptr<greeter>& g, const std::string& why) {
  std::erase(shaking_, g);
  std::erase(parked_, g);
  if (!g->is_dialer()) return note_refusal("refused a connection from " + g->remote() + ": " + why);
  const auto at = peers_.find(g->peer());
  if (at == peers_.end() || at->second.dialing != g) return;
  at->second.dialing.reset();
  note_dial_failure(g->peer(), at->second, why);
  dial_later(g->peer(), at->second);
}

void tcp_links::note_refusal(const std::string& line) {
  const auto now = steady_clock::now();
  if (now - refusals_since_ >= std::chrono::seconds(1)) {
    if (refusals_ > refusal_lines_per_second_max)
      log::warn("links: " + std::to_string(refusals_ - refusal_lines_per_second_max) +
                " more refusals were not logged");
    refusals_since_ = now;
    refusals_ = 0;
  }
  if (++refusals_ <= refusal_lines_per_second_max) log::warn("links: " + line);
}

// ---- links
// -------------------------------------------------------------------------------------------------

void tcp_links::admit(const std::shared_ptr<greeter>& g, named_peer& p) {
  drop_link(p, "a newer connection of the same peer took its place");
  std::vector<std::byte> preamble;
  if (!g->is_dialer()) {
    const auto welcome = g->welcome();
    preamble.assign(welcome.begin(), welcome.end());
  }
  p.dialing.reset();
  p.retry.cancel();
  p.last_failure.clear();
  p.up_since = steady_clock::now();
  p.link = std::make_shared<session>(g->take(), g->peer(), ++last_session_, std::move(preamble),
                                     options_.send_queue_bytes, *this);
  {
    std::lock_guard lock(up_mutex_);
    up_[g->peer()] = p.link;
  }
  log::debug("links: up with " + short_name(g->peer()));
  events_.up(g->peer(), p.link->number());
  p.link->start();
}

void tcp_links::broke(session& s, const std::string& why) {
  const auto at = peers_.find(s.peer());
  PERDURA_CHECK(at != peers_.end() && at->second.link.get() == &s, "only a peer's current link calls");
  auto& p = at->second;
  // Whoever breaks again at once is dialed ever more slowly.
  if (steady_clock::now() - p.up_since > options_.redial_max) p.back_off = milliseconds{0};
  const incarnation who = s.peer();
  drop_link(p, why);
  if (options_.self < who) dial_later(who, p);
}

void tcp_links::drop_link(named_peer& p, const std::string& why) {
  if (!p.link) return;
  const auto link = std::exchange(p.link, nullptr);
  {
    std::lock_guard lock(up_mutex_);
    up_.erase(link->peer());
  }
  link->stop();
  log::debug("links: down with " + short_name(link->peer()) + ": " + why);
  events_.down(link->peer(), link->number(), why);
}

nonce tcp_links::fresh_nonce() {
  nonce n;
  PERDURA_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(n.data()), n.size()) == 1,
                "OpenSSL has randomness");
  return n;
}

result<void> validate(const tcp_options& o, const link_events& events) {
  const auto refuse = [](const std::string& what) {
    return error{errc::invalid_argument, "cannot make links: " + what};
  };
  if (o.self.is_none()) return refuse("self is none; give the process's incarnation");
  if (!events.up || !events.down || !events.received || !events.writable)
    return refuse("an event has no handler");
  if (o.send_queue_bytes == 0) return refuse("send_queue_bytes is 0; at least 1 is needed");
  if (o.handshakes_max == 0 || o.parked_max == 0)
    return refuse("handshakes_max and parked_max are at least 1");
  if (o.handshake_timeout.count() <= 0 || o.parking_timeout.count() <= 0)
    return refuse("handshake_timeout and parking_timeout are above 0");
  if (o.redial_first.count() <= 0 || o.redial_max < o.redial_first)
    return refuse("redial_first is above 0 and redial_max not below it");
  return {};
}

}  // namespace

result<std::unique_ptr<links>> make_tcp_links(tcp_options options, link_events events) {
  if (auto valid = validate(options, events); !valid) return valid.failure();
  auto made = std::make_unique<tcp_links>(std::move(options), std::move(events));
  if (auto opened = made->open(); !opened) return opened.failure();
  return std::unique_ptr<links>(std::move(made));
}

}  // namespace perdura::transport
