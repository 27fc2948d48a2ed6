// A network inside one process, for tests: nothing moves but by deliver_one, and a seed decides what moves
// next. Order is kept within a direction of a link and random across; some directions are slower than others.
// What is in flight on a link that breaks still arrives up to a random point.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/transport/link.hpp"

namespace perdura::transport {

struct simulated_options {
  std::size_t send_queue_bytes = 64U << 20;  // in flight in one direction
};

class simulated_network {
 public:
  explicit simulated_network(std::uint64_t seed, simulated_options options = {});
  ~simulated_network();

  // Events of these links come from within deliver_one, on the thread that calls it. An incarnation attaches
  // once.
  std::unique_ptr<links> attach(const incarnation& self, link_events events);

  // Delivers one event (up, message, writable or down); false when nothing is under way.
  bool deliver_one();
  // Until nothing is under way, or `events_max` were delivered. Gives their number.
  std::size_t deliver_all(std::size_t events_max = 1'000'000);
  std::size_t in_flight() const;

  // The two cannot reach each other until `heal`.
  void cut(const incarnation& a, const incarnation& b);
  void heal(const incarnation& a, const incarnation& b);
  // It neither sends nor hears anything any more.
  void kill(const incarnation& who);

  // For the links handed out.
  void set_peers(const incarnation& self, const std::vector<peer>& peers);
  send_status send(const incarnation& from, const incarnation& to, std::uint64_t session, message&& m);

 private:
  enum class event_kind : std::uint8_t { up, message, writable, down };
  struct event {
    event_kind kind{};
    std::uint64_t session{};
    message content;
    std::string why;
  };
  // All that is on its way to one side of a link, and what that side knows.
  struct direction {
    std::deque<event> under_way;
    std::size_t bytes = 0;  // of messages under way
    bool sender_blocked = false;
    std::uint64_t known_session = 0;  // of the last `up` delivered that no `down` followed
    std::uint32_t speed = 1;
  };
  struct node {
    link_events events;
    std::set<incarnation> named;
    bool alive = true;
  };
  using pair = std::pair<incarnation, incarnation>;

  static pair unordered(const incarnation& a, const incarnation& b) {
    return a < b ? pair{a, b} : pair{b, a};
  }
  bool wants(const incarnation& self, const incarnation& other) const;
  void join_if_possible(const incarnation& a, const incarnation& b);
  void break_link(const incarnation& a, const incarnation& b, const std::string& why);
  void lose_tail(direction& d, std::uint64_t session, const std::string& why);
  direction* choose(pair& way);
  std::uint64_t random(std::uint64_t below);

  const simulated_options options_;
  mutable std::mutex mutex_;
  std::uint64_t random_state_;
  std::uint64_t last_session_ = 0;
  std::map<incarnation, node> nodes_;
  std::map<pair, direction> ways_;          // {from, to}
  std::map<pair, std::uint64_t> sessions_;  // unordered pairs that are linked now
  std::set<pair> cuts_;
};

}  // namespace perdura::transport
