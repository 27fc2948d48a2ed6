#include "coordinator/admin/client.hpp"

#include <capnp/rpc-twoparty.h>
#include <kj/async-io.h>

#include <optional>

#include "coordinator/admin/convert.hpp"
#include "coordinator/admin/tls_context.hpp"

namespace perdura::admin {

namespace {

// kj allows one event loop a thread: the clients of a thread share it.
std::shared_ptr<kj::AsyncIoContext> thread_loop() {
  thread_local std::weak_ptr<kj::AsyncIoContext> current;
  auto loop = current.lock();
  if (!loop) current = loop = std::make_shared<kj::AsyncIoContext>(kj::setupAsyncIo());
  return loop;
}

class remote final : public admin_api {
 public:
  remote(std::string address, client_options options)
      : address_(std::move(address)), options_(std::move(options)), loop_(thread_loop()) {}

  ~remote() noexcept override = default;

  result<void> open(const std::string& host, std::uint16_t port);
  result<void> secure();

  result<cluster_status> status() override { return ask<cluster_status>(observer_->statusRequest()); }
  result<std::vector<node_info>> nodes() override { return ask_list<node_info>(observer_->nodesRequest()); }
  result<std::vector<worker_info>> workers() override {
    return ask_list<worker_info>(observer_->workersRequest());
  }
  result<std::vector<job_info>> jobs() override { return ask_list<job_info>(observer_->jobsRequest()); }
  result<plan_info> plan(const std::string& job) override {
    return ask<plan_info>(of_job(observer_->planRequest(), job));
  }
  result<event_page> events(const event_query& query) override {
    auto request = observer_->eventsRequest();
    put(request.initQuery(), query);
    return ask<event_page>(std::move(request), std::chrono::milliseconds(query.wait_ms));
  }
  result<std::vector<step_info>> steps(const std::string& job, step_number from,
                                       std::uint32_t limit) override {
    auto request = of_job(observer_->stepsRequest(), job);
    request.setFrom(from.value);
    request.setLimit(limit);
    return ask_list<step_info>(std::move(request));
  }
  result<std::vector<recovery_info>> recoveries(const std::string& job) override {
    return ask_list<recovery_info>(of_job(observer_->recoveriesRequest(), job));
  }
  result<std::vector<checkpoint_info>> checkpoints(const std::string& job) override {
    return ask_list<checkpoint_info>(of_job(observer_->checkpointsRequest(), job));
  }
  result<std::vector<tier_info>> tiers() override { return ask_list<tier_info>(observer_->tiersRequest()); }

  result<submission> submit(const std::string& text, const std::string& file) override {
    auto request = operator_->submitRequest();
    request.setText(text);
    request.setFile(file);
    return ask<submission>(std::move(request));
  }
  result<receipt> pause(const std::string& job) override {
    return ask<receipt>(of_job(operator_->pauseRequest(), job));
  }
  result<receipt> resume(const std::string& job) override {
    return ask<receipt>(of_job(operator_->resumeRequest(), job));
  }
  result<receipt> cancel(const std::string& job) override {
    return ask<receipt>(of_job(operator_->cancelRequest(), job));
  }
  result<receipt> drain(const std::string& name, std::optional<std::chrono::milliseconds> within) override {
    auto request = operator_->drainRequest();
    request.setName(name);
    if (within) request.setWithinMs(static_cast<std::uint64_t>(within->count()));
    return ask<receipt>(std::move(request));
  }
  result<receipt> kill(const std::string& worker) override {
    auto request = operator_->killRequest();
    request.setWorker(worker);
    return ask<receipt>(std::move(request));
  }
  result<receipt> checkpoint_now(const std::string& job) override {
    return ask<receipt>(of_job(operator_->checkpointNowRequest(), job));
  }
  result<receipt> collect_garbage(const std::string& job, bool dry_run) override {
    auto request = of_job(operator_->collectGarbageRequest(), job);
    request.setDryRun(dry_run);
    return ask<receipt>(std::move(request));
  }
  result<receipt> rebuild_index() override { return ask<receipt>(operator_->rebuildIndexRequest()); }
  result<receipt> shutdown() override { return ask<receipt>(operator_->shutdownRequest()); }

 private:
  template <class Request>
  static Request of_job(Request request, const std::string& job) {
    request.setJob(job);
    return request;
  }

  template <class T, class Request>
  result<T> ask(Request request, std::chrono::milliseconds extra = {}) {
    return call<T>(std::move(request), extra, [](const auto& reply) { return get_reply<T>(reply); });
  }
  template <class T, class Request>
  result<std::vector<T>> ask_list(Request request) {
    return call<std::vector<T>>(std::move(request), {},
                                [](const auto& reply) { return get_list_reply<T>(reply); });
  }

  template <class T, class Request, class Decode>
  result<T> call(Request request, std::chrono::milliseconds extra, Decode decode) {
    try {
      const auto response = within(options_.call_timeout + extra, request.send()).wait(loop_->waitScope);
      return decode(response);
    } catch (const kj::Exception& e) { return translated(e); }
  }

  template <class T>
  kj::Promise<T> within(std::chrono::milliseconds limit, kj::Promise<T> promise) {
    return loop_->provider->getTimer().timeoutAfter(limit.count() * kj::MILLISECONDS, kj::mv(promise));
  }
  template <class T>
  auto within(std::chrono::milliseconds limit, capnp::RemotePromise<T> promise) {
    return within(limit, kj::Promise<capnp::Response<T>>(kj::mv(promise)));
  }

  error translated(const kj::Exception& e) const {
    const std::string what(e.getDescription().cStr());
    switch (e.getType()) {
      case kj::Exception::Type::DISCONNECTED:
        return {errc::unavailable, "lost the coordinator at " + address_};
      // kj's timeouts come as this type.
      case kj::Exception::Type::OVERLOADED:
        if (what.find("timed out") != std::string::npos)
          return {errc::timeout, "the coordinator at " + address_ + " did not answer in time"};
        return {errc::exhausted, "the coordinator at " + address_ + " refused: " + what};
      default: return {errc::internal, "the coordinator at " + address_ + " failed: " + what};
    }
  }

  std::string address_;
  client_options options_;
  std::shared_ptr<kj::AsyncIoContext> loop_;
  kj::Own<kj::TlsContext> tls_;
  kj::Own<kj::AsyncIoStream> stream_;
  kj::Own<capnp::TwoPartyVatNetwork> network_;
  std::optional<capnp::RpcSystem<capnp::rpc::twoparty::VatId>> rpc_;
  std::optional<schema::Observer::Client> observer_;
  std::optional<schema::Operator::Client> operator_;
};

result<void> remote::secure() {
  auto made = make_tls_context(*options_.tls);
  if (!made) return made.failure();
  tls_ = kj::mv(*made);
  const auto coordinator = tls::dns_name_of(tls::role::coordinator);
  try {
    stream_ = within(options_.connect_timeout, tls_->wrapClient(kj::mv(stream_), coordinator.c_str()))
                  .wait(loop_->waitScope);
    return {};
  } catch (const kj::Exception& e) {
    if (e.getType() == kj::Exception::Type::OVERLOADED)
      return error{errc::unavailable, "what listens at " + address_ + " does not answer within " +
                                          std::to_string(options_.connect_timeout.count()) + " ms"};
    return error{errc::refused, "what listens at " + address_ +
                                    " is no coordinator of this cluster over TLS: " +
                                    std::string(e.getDescription().cStr())};
  }
}

result<void> remote::open(const std::string& host, std::uint16_t port) {
  try {
    auto& network = loop_->provider->getNetwork();
    auto connecting = network.parseAddress(host, port).then([](kj::Own<kj::NetworkAddress> a) {
      auto promise = a->connect();
      return promise.attach(kj::mv(a));
    });
    stream_ = within(options_.connect_timeout, kj::mv(connecting)).wait(loop_->waitScope);
  } catch (const kj::Exception& e) {
    return error{errc::unavailable, "no coordinator answers at " + address_};
  }
  if (options_.tls)
    if (auto secured = secure(); !secured) return secured;
  network_ = kj::heap<capnp::TwoPartyVatNetwork>(*stream_, capnp::rpc::twoparty::Side::CLIENT);
  rpc_.emplace(capnp::makeRpcClient(*network_));
  capnp::MallocMessageBuilder id;
  auto vat = id.initRoot<capnp::rpc::twoparty::VatId>();
  vat.setSide(capnp::rpc::twoparty::Side::SERVER);
  try {
    auto request = rpc_->bootstrap(vat).castAs<schema::Gate>().loginRequest();
    request.initHello().setApiVersion(schema::API_VERSION);
    request.getHello().setClient(options_.name);
    auto response = within(options_.connect_timeout, request.send()).wait(loop_->waitScope);
    if (response.isError()) return get(response.getError());
    observer_ = response.getValue().getObserver();
    operator_ = response.getValue().getOperator();
    return {};
  } catch (const kj::Exception& e) {
    // kj's timeouts come as OVERLOADED.
    if (e.getType() == kj::Exception::Type::OVERLOADED)
      return error{errc::unavailable, "what listens at " + address_ + " does not answer within " +
                                          std::to_string(options_.connect_timeout.count()) + " ms"};
    return error{
        errc::unavailable,
        "what listens at " + address_ +
            (options_.tls ? " does not let us in; is ours an admin's certificate of its cluster?"
                          : " is no coordinator's admin port, or one with TLS: then set tls_folder")};
  }
}

}  // namespace

result<std::unique_ptr<admin_api>> connect(const std::string& host, std::uint16_t port,
                                           const client_options& options) {
  auto client = std::make_unique<remote>(host + ":" + std::to_string(port), options);
  if (auto r = client->open(host, port); !r) return r.failure();
  return std::unique_ptr<admin_api>(std::move(client));
}

}  // namespace perdura::admin
