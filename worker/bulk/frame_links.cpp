#include "worker/bulk/frame_links.hpp"

#include "actors/base/log.hpp"
#include "actors/wire/codec.hpp"

namespace perdura::worker {

result<std::unique_ptr<frame_links>> frame_links::make(const maker& make_links, frame_events events) {
  std::unique_ptr<frame_links> made(new frame_links(std::move(events)));
  auto links = make_links(made->handlers());
  if (!links) return links.failure();
  made->links_ = std::move(*links);
  return made;
}

frame_links::~frame_links() { close(); }

void frame_links::close() {
  if (links_) links_->close();
}

transport::link_events frame_links::handlers() {
  transport::link_events h;
  h.up = [this](incarnation peer, std::uint64_t session) { events_.up(peer, session); };
  h.down = [this](incarnation peer, std::uint64_t, std::string why) {
    {
      const std::lock_guard lock(mutex_);
      backlogs_.erase(peer);
    }
    events_.down(peer, std::move(why));
  };
  h.received = [this](incarnation peer, std::uint64_t, transport::message m) {
    auto f = wire::decode_frame(m.head, std::move(m.body));
    // Who it is from is the link's word, not the frame's.
    if (f && f->from == peer) return events_.received(std::move(*f));
    log::warn("dropped a frame of " + short_name(peer) + ": " +
              (f ? std::string("it names another sender") : f.failure().message));
  };
  h.writable = [this](incarnation peer) { flush(peer); };
  return h;
}

void frame_links::send(const incarnation& to, std::uint64_t session, const frame& f) {
  transport::message m{wire::encode_head(f), wire::body_of(f)};
  const std::lock_guard lock(mutex_);
  auto queue = backlogs_.find(to);
  if (queue != backlogs_.end() && queue->second.session == session) {
    queue->second.waiting.push_back(std::move(m));
    return;
  }
  if (links_->send(to, session, std::move(m)) != transport::send_status::would_block) return;
  auto& fresh = backlogs_[to];
  fresh = {session, {}};
  fresh.waiting.push_back(std::move(m));
}

void frame_links::flush(const incarnation& to) {
  const std::lock_guard lock(mutex_);
  const auto queue = backlogs_.find(to);
  if (queue == backlogs_.end()) return;
  auto& [session, waiting] = queue->second;
  while (!waiting.empty()) {
    const auto status = links_->send(to, session, std::move(waiting.front()));
    if (status == transport::send_status::would_block) return;
    waiting.pop_front();
  }
  backlogs_.erase(queue);
}

}  // namespace perdura::worker
