#include "coordinator/admin/facets.hpp"

#include <algorithm>

#include "actors/base/log.hpp"
#include "coordinator/admin/convert.hpp"

namespace perdura::admin {

namespace {

constexpr std::size_t name_bytes_max = 256;
constexpr std::uint64_t deadline_ms_max = 7ull * 24 * 3600 * 1000;

// Names come from outside and go into the audit log: short, and without control characters.
result<std::string> checked_name(capnp::Text::Reader text, const char* field) {
  std::string name = get(text);
  if (name.size() > name_bytes_max)
    return error{errc::invalid_argument, std::string(field) + ": " + std::to_string(name.size()) +
                                             " bytes, allowed are " + std::to_string(name_bytes_max)};
  const bool printable =
      std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (!printable)
    return error{errc::invalid_argument, std::string(field) + ": control characters are not allowed"};
  return name;
}

result<std::optional<std::chrono::milliseconds>> checked_deadline(std::uint64_t within_ms) {
  if (within_ms == 0) return std::optional<std::chrono::milliseconds>();
  if (within_ms > deadline_ms_max)
    return error{errc::invalid_argument, "withinMs: " + std::to_string(within_ms) + ", allowed are " +
                                             std::to_string(deadline_ms_max) + ", a week"};
  return std::optional(std::chrono::milliseconds(within_ms));
}

class observer final : public schema::Observer::Server {
 public:
  explicit observer(shared_state& shared) : shared_(shared) {}

  kj::Promise<void> status(StatusContext c) override { return answer(c, shared_.service.status()); }
  kj::Promise<void> nodes(NodesContext c) override { return answer(c, shared_.service.nodes()); }
  kj::Promise<void> workers(WorkersContext c) override { return answer(c, shared_.service.workers()); }
  kj::Promise<void> jobs(JobsContext c) override { return answer(c, shared_.service.jobs()); }
  kj::Promise<void> plan(PlanContext c) override {
    return of_job(c, [&](const std::string& job) { return shared_.service.plan(job); });
  }
  kj::Promise<void> steps(StepsContext c) override {
    const step_number from(c.getParams().getFrom());
    const auto limit = std::min(c.getParams().getLimit(), steps_per_page_max);
    return of_job(c, [&](const std::string& job) { return shared_.service.steps(job, from, limit); });
  }
  kj::Promise<void> recoveries(RecoveriesContext c) override {
    return of_job(c, [&](const std::string& job) { return shared_.service.recoveries(job); });
  }
  kj::Promise<void> checkpoints(CheckpointsContext c) override {
    return of_job(c, [&](const std::string& job) { return shared_.service.checkpoints(job); });
  }
  kj::Promise<void> tiers(TiersContext c) override { return answer(c, shared_.service.tiers()); }
  kj::Promise<void> events(EventsContext c) override {
    c.allowCancellation();
    auto query = get(c.getParams().getQuery());
    c.releaseParams();
    query.limit = std::clamp<std::uint32_t>(query.limit, 1, shared_.options.events_per_page_max);
    const auto wait = std::min<std::int64_t>(query.wait_ms, shared_.options.follow_max.count());
    const bool was_following = query.after > 0;
    return poll(c, std::move(query), was_following, shared_.timer.now() + wait * kj::MILLISECONDS);
  }

 private:
  static constexpr std::uint32_t steps_per_page_max = 100000;

  template <class Context, class T>
  kj::Promise<void> answer(Context& c, const result<T>& r) {
    put_reply(c.getResults(), r);
    return kj::READY_NOW;
  }
  template <class Context, class Call>
  kj::Promise<void> of_job(Context& c, Call call) {
    auto job = checked_name(c.getParams().getJob(), "job");
    using outcome = decltype(call(*job));
    return answer(c, job ? call(*job) : outcome(job.failure()));
  }

  // Nothing is queued for a follower: it asks for what comes after its place. One that is so slow that the
  // log has dropped events it never saw is told so, rather than shown a history with a hole.
  kj::Promise<void> poll(EventsContext c, event_query query, bool was_following, kj::TimePoint deadline) {
    auto grew = shared_.events.wait();
    auto page = shared_.service.events(query);
    if (page && was_following && !query.newest && page->first_kept > query.after + 1)
      page = error{errc::exhausted, "follower cut off: it was at event " + std::to_string(query.after) +
                                        ", the log starts at " + std::to_string(page->first_kept) +
                                        " by now; read on with --after 0"};
    if (!page || !page->events.empty() || query.newest || shared_.timer.now() >= deadline)
      return answer(c, page);
    query.after = std::max(query.after, page->next);
    return grew.exclusiveJoin(shared_.timer.atTime(deadline))
        .then([this, c, query = std::move(query), was_following, deadline]() mutable {
          return poll(kj::mv(c), std::move(query), was_following, deadline);
        });
  }

  shared_state& shared_;
};

class operator_ final : public schema::Operator::Server {
 public:
  operator_(shared_state& shared, std::string who) : shared_(shared), who_(std::move(who)) {}

  kj::Promise<void> submit(SubmitContext c) override {
    auto file = checked_name(c.getParams().getFile(), "file");
    auto r = file ? shared_.service.submit(get(c.getParams().getText()), *file)
                  : result<submission>(file.failure());
    put_reply(c.getResults(), r);
    std::string outcome = r ? "ok" : r.failure().message;
    if (r && !r->errors.empty()) outcome = "refused: " + r->errors.front();
    shared_.service.audit({who_, "submit", file ? *file : "", outcome});
    return kj::READY_NOW;
  }
  kj::Promise<void> pause(PauseContext c) override {
    return write(c, "pause", c.getParams().getJob(), &admin_api::pause);
  }
  kj::Promise<void> resume(ResumeContext c) override {
    return write(c, "resume", c.getParams().getJob(), &admin_api::resume);
  }
  kj::Promise<void> cancel(CancelContext c) override {
    return write(c, "cancel", c.getParams().getJob(), &admin_api::cancel);
  }
  kj::Promise<void> drain(DrainContext c) override {
    const auto name = checked_name(c.getParams().getName(), "name");
    const auto within = checked_deadline(c.getParams().getWithinMs());
    audited(c, "drain", name ? *name : "",
            !name     ? result<receipt>(name.failure())
            : !within ? result<receipt>(within.failure())
                      : shared_.service.drain(*name, *within));
    return kj::READY_NOW;
  }
  kj::Promise<void> kill(KillContext c) override {
    return write(c, "kill", c.getParams().getWorker(), &admin_api::kill);
  }
  kj::Promise<void> checkpointNow(CheckpointNowContext c) override {
    return write(c, "checkpoint", c.getParams().getJob(), &admin_api::checkpoint_now);
  }
  kj::Promise<void> collectGarbage(CollectGarbageContext c) override {
    const auto job = checked_name(c.getParams().getJob(), "job");
    audited(c, "collect garbage", job ? *job : "",
            job ? shared_.service.collect_garbage(*job, c.getParams().getDryRun())
                : result<receipt>(job.failure()));
    return kj::READY_NOW;
  }
  kj::Promise<void> rebuildIndex(RebuildIndexContext c) override {
    audited(c, "rebuild the index", "", shared_.service.rebuild_index());
    return kj::READY_NOW;
  }
  kj::Promise<void> shutdown(ShutdownContext c) override {
    audited(c, "shutdown", "", shared_.service.shutdown());
    return kj::READY_NOW;
  }

 private:
  template <class Context>
  kj::Promise<void> write(Context& c, const char* action, capnp::Text::Reader subject,
                          result<receipt> (admin_api::*call)(const std::string&)) {
    auto name = checked_name(subject, "name");
    audited(c, action, name ? *name : "",
            name ? (shared_.service.*call)(*name) : result<receipt>(name.failure()));
    return kj::READY_NOW;
  }
  template <class Context>
  void audited(Context& c, const char* action, const std::string& subject, const result<receipt>& r) {
    put_reply(c.getResults(), r);
    shared_.service.audit({who_, action, subject, r ? "ok" : r.failure().message});
  }

  shared_state& shared_;
  std::string who_;
};

class gate final : public schema::Gate::Server {
 public:
  gate(shared_state& shared, std::function<void()> logged_in)
      : shared_(shared), logged_in_(std::move(logged_in)) {}

  kj::Promise<void> login(LoginContext c) override {
    const auto hello = c.getParams().getHello();
    const auto version = hello.getApiVersion();
    if (version != schema::API_VERSION) {
      put(c.getResults().initError(),
          error{errc::version_mismatch, "the client speaks admin version " + std::to_string(version) +
                                            ", the coordinator " + std::to_string(schema::API_VERSION) +
                                            ": use the perdura of the coordinator's release"});
      return kj::READY_NOW;
    }
    auto session = c.getResults().initValue();
    session.setApiVersion(schema::API_VERSION);
    session.setObserver(kj::heap<observer>(shared_));
    session.setOperator(kj::heap<operator_>(shared_, "local"));
    logged_in_();
    return kj::READY_NOW;
  }

 private:
  shared_state& shared_;
  std::function<void()> logged_in_;
};

}  // namespace

schema::Gate::Client make_gate(shared_state& shared, std::function<void()> logged_in) {
  return kj::heap<gate>(shared, std::move(logged_in));
}

}  // namespace perdura::admin
