#include "actors/transport/simulated_links.hpp"

#include <algorithm>
#include <array>

namespace perdura::transport {
namespace {

class simulated_links final : public links {
 public:
  simulated_links(simulated_network& network, const incarnation& self) : network_(network), self_(self) {}
  ~simulated_links() override { close(); }

  endpoint local() const override { return {"simulated:" + to_string(self_), 1}; }
  void set_peers(std::vector<peer> peers) override { network_.set_peers(self_, peers); }
  send_status send(const incarnation& to, std::uint64_t session, message&& m) override {
    return network_.send(self_, to, session, std::move(m));
  }
  void close() override { network_.kill(self_); }

 private:
  simulated_network& network_;
  const incarnation self_;
};

std::size_t size_of(const message& m) { return m.head.size() + m.body.size() + sizeof(message); }

}  // namespace

simulated_network::simulated_network(std::uint64_t seed, simulated_options options)
    : options_(options), random_state_(seed) {}

simulated_network::~simulated_network() = default;

std::unique_ptr<links> simulated_network::attach(const incarnation& self, link_events events) {
  std::lock_guard lock(mutex_);
  const bool is_new = nodes_.try_emplace(self, node{std::move(events), {}, true}).second;
  PERDURA_CHECK(is_new, "an incarnation attaches once: a process that comes back is another");
  return std::make_unique<simulated_links>(*this, self);
}

// ---- what the network does
// ---------------------------------------------------------------------------------

bool simulated_network::deliver_one() {
  event e;
  pair way;
  const link_events* events = nullptr;
  {
    std::lock_guard lock(mutex_);
    direction* d = choose(way);
    if (d == nullptr) return false;
    e = std::move(d->under_way.front());
    d->under_way.pop_front();
    events = &nodes_.at(way.second).events;
    if (e.kind == event_kind::up) d->known_session = e.session;
    if (e.kind == event_kind::down) d->known_session = 0;
    if (e.kind == event_kind::message) {
      d->bytes -= size_of(e.content);
      const auto linked = sessions_.find(unordered(way.first, way.second));
      const bool room = d->sender_blocked && d->bytes <= options_.send_queue_bytes / 2;
      if (room && linked != sessions_.end()) {
        d->sender_blocked = false;
        ways_[{way.second, way.first}].under_way.push_back({event_kind::writable, linked->second, {}, {}});
      }
    }
  }
  switch (e.kind) {
    case event_kind::up: events->up(way.first, e.session); break;
    case event_kind::message: events->received(way.first, e.session, std::move(e.content)); break;
    case event_kind::writable: events->writable(way.first); break;
    case event_kind::down: events->down(way.first, e.session, std::move(e.why)); break;
  }
  return true;
}

std::size_t simulated_network::deliver_all(std::size_t events_max) {
  std::size_t count = 0;
  while (count < events_max && deliver_one()) ++count;
  return count;
}

std::size_t simulated_network::in_flight() const {
  std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [way, d] : ways_) count += d.under_way.size();
  return count;
}

simulated_network::direction* simulated_network::choose(pair& way) {
  std::uint64_t tickets = 0;
  for (const auto& [_, d] : ways_)
    if (!d.under_way.empty()) tickets += d.speed;
  if (tickets == 0) return nullptr;
  std::uint64_t drawn = random(tickets);
  for (auto& [name, d] : ways_) {
    if (d.under_way.empty()) continue;
    if (drawn < d.speed) {
      way = name;
      return &d;
    }
    drawn -= d.speed;
  }
  return nullptr;
}

// ---- what a test does to it
// --------------------------------------------------------------------------------

void simulated_network::cut(const incarnation& a, const incarnation& b) {
  std::lock_guard lock(mutex_);
  cuts_.insert(unordered(a, b));
  break_link(a, b, "the network was cut");
}

void simulated_network::heal(const incarnation& a, const incarnation& b) {
  std::lock_guard lock(mutex_);
  cuts_.erase(unordered(a, b));
  join_if_possible(a, b);
}

void simulated_network::kill(const incarnation& who) {
  std::lock_guard lock(mutex_);
  const auto found = nodes_.find(who);
  if (found == nodes_.end() || !found->second.alive) return;
  found->second.alive = false;
  for (const auto& [other, _] : nodes_) break_link(who, other, "the peer's process ended");
  for (auto& [way, d] : ways_)
    if (way.second == who) d.under_way.clear();
}

// ---- what the links ask for
// --------------------------------------------------------------------------------

void simulated_network::set_peers(const incarnation& self, const std::vector<peer>& peers) {
  std::lock_guard lock(mutex_);
  auto& mine = nodes_.at(self);
  if (!mine.alive) return;
  mine.named.clear();
  for (const auto& p : peers) mine.named.insert(p.who);
  for (const auto& [other, _] : nodes_) {
    if (!mine.named.contains(other)) break_link(self, other, "a side was told to let the link go");
    join_if_possible(self, other);
  }
}

send_status simulated_network::send(const incarnation& from, const incarnation& to, std::uint64_t session,
                                    message&& m) {
  PERDURA_CHECK(m.head.size() <= head_bytes_max && m.body.size() <= body_bytes_max,
                "messages keep to the limits");
  std::lock_guard lock(mutex_);
  const auto back = ways_.find({to, from});
  if (!nodes_.at(from).alive || back == ways_.end() || back->second.known_session == 0)
    return send_status::not_connected;
  const std::uint64_t known = back->second.known_session;
  if (session != links::any_session && session != known) return send_status::not_connected;
  const auto linked = sessions_.find(unordered(from, to));
  if (linked == sessions_.end() || linked->second != known) {
    // Broken, but the sender has not heard of it: accepted, and lost.
    [[maybe_unused]] const message lost = std::move(m);
    return send_status::queued;
  }
  auto& d = ways_.at({from, to});
  const std::size_t size = size_of(m);
  if (d.bytes > 0 && d.bytes + size > options_.send_queue_bytes) {
    d.sender_blocked = true;
    return send_status::would_block;
  }
  d.bytes += size;
  d.under_way.push_back({event_kind::message, known, std::move(m), {}});
  return send_status::queued;
}

bool simulated_network::wants(const incarnation& self, const incarnation& other) const {
  const auto found = nodes_.find(self);
  return found != nodes_.end() && found->second.alive && found->second.named.contains(other);
}

void simulated_network::join_if_possible(const incarnation& a, const incarnation& b) {
  const auto both = unordered(a, b);
  if (a == b || !wants(a, b) || !wants(b, a) || cuts_.contains(both)) return;
  if (!sessions_.try_emplace(both, last_session_ + 1).second) return;
  ++last_session_;
  constexpr std::array<std::uint32_t, 3> speeds{1, 4, 16};
  for (const auto& way : {pair{a, b}, pair{b, a}}) {
    auto& d = ways_[way];
    d.speed = speeds[random(speeds.size())];
    d.under_way.push_back({event_kind::up, last_session_, {}, {}});
  }
}

void simulated_network::break_link(const incarnation& a, const incarnation& b, const std::string& why) {
  const auto linked = sessions_.find(unordered(a, b));
  if (linked == sessions_.end()) return;
  const std::uint64_t session = linked->second;
  sessions_.erase(linked);
  for (const auto& way : {pair{a, b}, pair{b, a}}) lose_tail(ways_.at(way), session, why);
}

// Of this session's events a random number still arrives; its `up` always, so that the `down` follows one.
void simulated_network::lose_tail(direction& d, std::uint64_t session, const std::string& why) {
  const auto first = std::find_if(d.under_way.begin(), d.under_way.end(), [&](const event& e) {
    return e.session == session && e.kind != event_kind::up;
  });
  const auto count = static_cast<std::uint64_t>(d.under_way.end() - first);
  d.under_way.erase(first + static_cast<std::ptrdiff_t>(random(count + 1)), d.under_way.end());
  d.bytes = 0;
  for (const auto& e : d.under_way)
    if (e.kind == event_kind::message) d.bytes += size_of(e.content);
  d.sender_blocked = false;
  d.under_way.push_back({event_kind::down, session, {}, why});
}

// splitmix64: the same on every platform.
std::uint64_t simulated_network::random(std::uint64_t below) {
  random_state_ += 0x9e3779b97f4a7c15ULL;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return (z ^ (z >> 31)) % below;
}

}  // namespace perdura::transport
