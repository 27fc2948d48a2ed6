// Frames over the data links. The protocol's send never fails and never waits: what a full link does not take
// is kept, in order, until it does; a link that takes nothing for too long is somebody's lease, not ours.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "actors/base/frames.hpp"
#include "actors/transport/link.hpp"

namespace perdura::worker {

struct frame_events {
  std::function<void(incarnation peer, std::uint64_t session)> up;
  std::function<void(incarnation peer, std::string why)> down;
  std::function<void(frame)> received;
};

class frame_links {
 public:
  using maker = std::function<result<std::unique_ptr<transport::links>>(transport::link_events)>;

  // Events come on the links' thread, in order for each peer.
  static result<std::unique_ptr<frame_links>> make(const maker& make_links, frame_events events);
  ~frame_links();

  endpoint local() const { return links_->local(); }
  void set_peers(std::vector<peer> peers) { links_->set_peers(std::move(peers)); }
  // On the session that the caller knows of; if that has broken the frame is dropped: the break was or will
  // be told.
  void send(const incarnation& to, std::uint64_t session, const frame& f);
  void close();

 private:
  struct backlog {
    std::uint64_t session{};
    std::deque<transport::message> waiting;
  };
  explicit frame_links(frame_events events) : events_(std::move(events)) {}
  transport::link_events handlers();
  void flush(const incarnation& to);

  frame_events events_;
  std::mutex mutex_;  // of the backlogs
  std::map<incarnation, backlog> backlogs_;
  std::unique_ptr<transport::links> links_;
};

}  // namespace perdura::worker
