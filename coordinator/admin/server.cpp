#include "coordinator/admin/server.hpp"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>

#include <atomic>
#include <future>
#include <list>
#include <mutex>
#include <thread>

#include "actors/base/log.hpp"
#include "coordinator/admin/bounded_stream.hpp"
#include "coordinator/admin/facets.hpp"
#include "coordinator/admin/tls_context.hpp"

namespace perdura::admin {

namespace {

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.rfind("127.", 0) == 0;
}

std::string text_of(const kj::Exception& e) { return {e.getDescription().cStr(), e.getDescription().size()}; }

capnp::ReaderOptions reader_options(const server_options& options) {
  capnp::ReaderOptions reader;
  reader.traversalLimitInWords = options.message_bytes_max / sizeof(capnp::word);
  reader.nestingLimit = 16;
  return reader;
}

kj::Duration duration(std::chrono::milliseconds ms) { return ms.count() * kj::MILLISECONDS; }

struct connection {
  connection(shared_state& shared, kj::Own<kj::AsyncIoStream> socket, std::function<void()> flooded)
      : stream(kj::mv(socket)),
        since(shared.timer.now()),
        bounded(*stream, {shared.options.open_calls_max, shared.options.unsent_bytes_max},
                {[this] { return network.getCurrentQueueSize(); }, std::move(flooded)}, shared.timer),
        network(bounded, capnp::rpc::twoparty::Side::SERVER, reader_options(shared.options)),
        rpc(capnp::makeRpcServer(network, make_gate(shared, [this] { is_logged_in = true; }))),
        drop(kj::newPromiseAndFulfiller<void>()) {}

  kj::Own<kj::AsyncIoStream> stream;
  kj::TimePoint since;
  bool is_logged_in = false;
  bounded_stream bounded;
  capnp::TwoPartyVatNetwork network;
  capnp::RpcSystem<capnp::rpc::twoparty::VatId> rpc;
  kj::PromiseFulfillerPair<void> drop;
};

}  // namespace

struct server::state {
  state(admin_service& s, server_options o) : service(s), options(std::move(o)) {}

  admin_service& service;
  const server_options options;
  std::uint16_t port = 0;
  std::atomic<std::uint32_t> connection_count{0};
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> cut_off{0};

  std::mutex wakers;  // guards the next two, which other threads fulfill
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> stop;
  kj::Own<kj::CrossThreadPromiseFulfiller<void>> grew;  // null while a wake-up is on its way
  std::thread thread;

  void run(std::promise<result<void>> started);
  kj::Promise<void> pass_on_events(event_signal& signal);
};

namespace {

// All that lives inside the event loop.
class loop final : kj::TaskSet::ErrorHandler {
 public:
  loop(kj::AsyncIoContext& io, admin_service& service, const server_options& options,
       std::atomic<std::uint32_t>& count, std::atomic<std::uint64_t>& accepted,
       std::atomic<std::uint64_t>& cut_off, kj::Own<kj::TlsContext> tls)
      : tls_(kj::mv(tls)),
        shared_{service, options, io.provider->getTimer(), {}},
        count_(count),
        accepted_(accepted),
        cut_off_(cut_off),
        tasks_(*this) {}

  event_signal& events() { return shared_.events; }

  kj::Promise<void> accept_from(kj::ConnectionReceiver& listener) {
    return listener.acceptAuthenticated().then([this, &listener](kj::AuthenticatedStream peer) {
      ++accepted_;
      if (tls_.get() == nullptr)
        admit(kj::mv(peer.stream));
      else
        secure(kj::mv(peer));
      return accept_from(listener);
    });
  }

  kj::Promise<void> sweep() {
    return shared_.timer.afterDelay(1 * kj::SECONDS).then([this] {
      for (auto* c : connections_) {
        if (c->network.getOutgoingMessageWaitTime() > duration(shared_.options.unread_max))
          drop(*c, "it does not read its answers");
        else if (!c->is_logged_in && shared_.timer.now() - c->since > duration(shared_.options.login_max))
          drop(*c, "it did not log in");
      }
      return sweep();
    });
  }

 private:
  using hand = kj::Own<kj::PromiseFulfiller<void>>;

  // TLS's handshake, within the time of a login; of too many at once the oldest goes.
  void secure(kj::AuthenticatedStream peer) {
    std::string from = peer.peerIdentity->toString().cStr();
    if (shaking_.size() >= shared_.options.connections_max)
      shaking_.front()->reject(KJ_EXCEPTION(OVERLOADED, "too many shake hands at once"));
    auto given_up = kj::newPromiseAndFulfiller<void>();
    const auto place = shaking_.insert(shaking_.end(), kj::mv(given_up.fulfiller));
    auto leave = kj::defer([this, place] { shaking_.erase(place); });
    auto shaken =
        shared_.timer.timeoutAfter(duration(shared_.options.login_max), tls_->wrapServer(kj::mv(peer)))
            .then([this, from](kj::AuthenticatedStream secured) {
              auto& shown = kj::downcast<kj::TlsPeerIdentity>(*secured.peerIdentity);
              const std::string who = shown.getCommonName().cStr();
              if (!who.starts_with(tls::uri_of({tls::role::admin, ""})))
                return refuse(from, "it shows the certificate of " + who + ", not of an admin");
              admit(kj::mv(secured.stream));
            });
    tasks_.add(shaken.exclusiveJoin(kj::mv(given_up.promise))
                   .catch_([this, from](kj::Exception&& e) { refuse(from, text_of(e)); })
                   .attach(kj::mv(leave)));
  }

  void refuse(const std::string& from, const std::string& why) {
    ++cut_off_;
    const auto now = shared_.timer.now();
    const bool is_rare = now - last_refusal_ > 100 * kj::MILLISECONDS;
    if (is_rare) last_refusal_ = now;
    log::write(is_rare ? log::level::warn : log::level::debug,
               "admin: refused a client from " + from + ": " + why);
  }

  void admit(kj::Own<kj::AsyncIoStream> socket) {
    if (connections_.size() >= shared_.options.connections_max) drop_longest_silent();
    add(kj::mv(socket));
  }

  void add(kj::Own<kj::AsyncIoStream> socket) {
    auto flooded = [this, socket = socket.get()] {
      for (auto* c : connections_)
        if (c->stream.get() == socket) drop(*c, "it left too many answers unread");
    };
    auto c = kj::heap<connection>(shared_, kj::mv(socket), flooded);
    auto* p = c.get();
    connections_.push_back(p);
    ++count_;
    auto leave = kj::defer([this, p] {
      connections_.remove(p);
      --count_;
    });
    tasks_.add(
        c->network.onDisconnect().exclusiveJoin(kj::mv(c->drop.promise)).attach(kj::mv(c), kj::mv(leave)));
  }

  void drop(connection& c, const char* why) {
    // A flood of clients must not become a flood of lines.
    const auto now = shared_.timer.now();
    const auto level = now - last_warning_ > 1 * kj::SECONDS ? log::level::warn : log::level::debug;
    if (level == log::level::warn) last_warning_ = now;
    log::write(level, std::string("admin: a client was cut off: ") + why);
    ++cut_off_;
    c.drop.fulfiller->fulfill();
  }

  // Clients with a call pending are followers: they are kept as long as there is any other.
  void drop_longest_silent() {
    auto rank = [](const connection* c) {
      return std::pair(c->bounded.open_calls() > 0 && c->is_logged_in, c->bounded.last_heard());
    };
    connection* oldest = nullptr;
    for (auto* c : connections_)
      if (c->drop.fulfiller->isWaiting() && (oldest == nullptr || rank(c) < rank(oldest))) oldest = c;
    if (oldest != nullptr) drop(*oldest, "too many are connected, and it was silent for longest");
  }

  void taskFailed(kj::Exception&& e) override { log::debug("admin: a connection ended: " + text_of(e)); }

  kj::Own<kj::TlsContext> tls_;  // null: plain
  shared_state shared_;
  std::atomic<std::uint32_t>& count_;
  std::atomic<std::uint64_t>& accepted_;
  std::atomic<std::uint64_t>& cut_off_;
  std::list<connection*> connections_;
  std::list<hand> shaking_;
  kj::TimePoint last_warning_ = kj::origin<kj::TimePoint>();
  kj::TimePoint last_refusal_ = kj::origin<kj::TimePoint>();
  kj::TaskSet tasks_;  // owns the connections; last, so that they go first
};

}  // namespace

kj::Promise<void> server::state::pass_on_events(event_signal& signal) {
  auto pair = kj::newPromiseAndCrossThreadFulfiller<void>();
  {
    std::lock_guard lock(wakers);
    grew = kj::mv(pair.fulfiller);
  }
  // Armed again before followers look, so that an event that comes meanwhile wakes them again.
  return pair.promise.then([this, &signal] {
    auto next = pass_on_events(signal);
    signal.fire();
    return next;
  });
}

void server::state::run(std::promise<result<void>> started) {
  bool is_started = false;
  try {
    kj::Own<kj::TlsContext> tls;
    if (options.tls) {
      auto made = make_tls_context(*options.tls);
      if (!made) return started.set_value(made.failure());
      tls = kj::mv(*made);
    }
    auto io = kj::setupAsyncIo();
    loop inside(io, service, options, connection_count, accepted, cut_off, kj::mv(tls));
    const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
    auto address = io.provider->getNetwork().parseAddress(host, options.port).wait(io.waitScope);
    auto listener = address->listen();
    port = static_cast<std::uint16_t>(listener->getPort());
    auto stop_pair = kj::newPromiseAndCrossThreadFulfiller<void>();
    {
      std::lock_guard lock(wakers);
      stop = kj::mv(stop_pair.fulfiller);
    }
    auto work = kj::joinPromises(
        kj::arr(inside.accept_from(*listener), inside.sweep(), pass_on_events(inside.events())));
    started.set_value({});
    is_started = true;
    stop_pair.promise.exclusiveJoin(kj::mv(work)).wait(io.waitScope);
  } catch (const kj::Exception& e) {
    if (is_started)
      log::error("admin: the server ended: " + text_of(e));
    else
      started.set_value(error{errc::io, "admin: cannot listen on " + options.host + ":" +
                                            std::to_string(options.port) + ": " + text_of(e) +
                                            "; choose another with --admin-port"});
  }
  std::lock_guard lock(wakers);
  stop = nullptr;
  grew = nullptr;
}

result<std::unique_ptr<server>> server::start(admin_service& service, const server_options& options) {
  if (!options.tls && !is_loopback(options.host))
    return error{errc::refused,
                 "admin: listening on " + options.host +
                     " needs the cluster's certificates; set tls_folder, or use 127.0.0.1, and ssh -L "
                     "from afar"};
  auto s = std::make_unique<state>(service, options);
  std::promise<result<void>> started;
  auto outcome = started.get_future();
  s->thread =
      std::thread([p = s.get(), started = std::move(started)]() mutable { p->run(std::move(started)); });
  if (auto r = outcome.get(); !r) {
    s->thread.join();
    return r.failure();
  }
  return std::unique_ptr<server>(new server(std::move(s)));
}

server::server(std::unique_ptr<state> s) : state_(std::move(s)) {}

server::~server() {
  {
    std::lock_guard lock(state_->wakers);
    if (state_->stop.get() != nullptr) state_->stop->fulfill();
  }
  state_->thread.join();
}

std::uint16_t server::port() const { return state_->port; }

void server::events_grew() {
  std::lock_guard lock(state_->wakers);
  if (state_->grew.get() == nullptr) return;
  state_->grew->fulfill();
  state_->grew = nullptr;
}

server_counts server::counts() const {
  return {state_->connection_count.load(), state_->accepted.load(), state_->cut_off.load()};
}

}  // namespace perdura::admin
