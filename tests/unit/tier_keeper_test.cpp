// The thread that brings checkpoints to a tier, over a tier that can be broken.
#include "storage/s3/tier_keeper.hpp"
#include "storage/s3/tiers.hpp"

#include <doctest/doctest.h>

#include <atomic>

#include "storage/checkpoint_reader.hpp"
#include "storage/folder_store.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;
using namespace std::chrono_literals;

namespace {

// A folder that is out of reach on demand, and can be held up.
class moody_store : public object_store {
 public:
  struct mood {
    std::atomic<bool> is_down = false;
    std::atomic<bool> is_held = false;
    std::atomic<int> puts = 0;
  };
  moody_store(std::filesystem::path root, std::shared_ptr<mood> m)
      : inner_(std::move(root)), mood_(std::move(m)) {}

  result<void> put_if_absent(const std::string& name, std::string_view bytes) const override {
    if (auto up = check(); !up) return up;
    return inner_.put_if_absent(name, bytes);
  }
  result<void> put_file(const std::string& name, const std::filesystem::path& source,
                        put_mode mode) const override {
    ++mood_->puts;
    while (mood_->is_held) std::this_thread::sleep_for(1ms);
    if (auto up = check(); !up) return up;
    return inner_.put_file(name, source, mode);
  }
  result<std::string> get(const std::string& name) const override {
    if (auto up = check(); !up) return up.failure();
    return inner_.get(name);
  }
  result<void> get_range(const std::string& name, std::uint64_t offset,
                         std::span<std::byte> out) const override {
    if (auto up = check(); !up) return up;
    return inner_.get_range(name, offset, out);
  }
  result<std::optional<std::uint64_t>> size(const std::string& name) const override {
    if (auto up = check(); !up) return up.failure();
    return inner_.size(name);
  }
  result<void> remove(const std::string& name) const override {
    if (auto up = check(); !up) return up;
    return inner_.remove(name);
  }
  result<std::vector<object_entry>> list(const std::string& folder) const override {
    if (auto up = check(); !up) return up.failure();
    return inner_.list(folder);
  }
  std::string where() const override { return "a moody tier"; }

 private:
  result<void> check() const {
    if (!mood_->is_down) return {};
    return error{errc::unavailable, "the tier is down"};
  }
  folder_store inner_;
  std::shared_ptr<mood> mood_;
};

template <class Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

struct rig {
  temporary_folder here, there;
  std::shared_ptr<moody_store::mood> mood = std::make_shared<moody_store::mood>();
  std::mutex mutex;
  std::vector<tier_event> events;

  std::unique_ptr<tier_keeper> keeper(std::size_t keep = 10) {
    tier_options o;
    o.name = "far";
    o.keep = keep;
    o.retry_first = 1ms;
    o.retry_longest = 5ms;
    return std::make_unique<tier_keeper>(o, std::make_unique<moody_store>(there.path(), mood), here.path(),
                                         [this](const tier_event& e) {
                                           const std::lock_guard lock(mutex);
                                           events.push_back(e);
                                         });
  }
  checkpoint_key make(std::uint64_t step) {
    const auto key = at_step(step);
    auto m = written_checkpoint(here.path(), key);
    sort_chunks(m);
    object_folder(here.path()).put_if_absent(manifest_object(key), encode(m)).value();
    return key;
  }
  std::vector<checkpoint_key> in_tier() { return list_checkpoints(object_folder(there.path()), "").value(); }
  std::size_t count(tier_event::kind what) {
    const std::lock_guard lock(mutex);
    return static_cast<std::size_t>(
        std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.what == what; }));
  }
};

}  // namespace

TEST_CASE("what was committed is brought to the tier, and said so") {
  rig r;
  const auto keeper = r.keeper();
  keeper->start();
  const auto key = r.make(5);
  keeper->committed(key);
  CHECK(comes_true([&] { return keeper->status().newest["job-1"] == key; }));
  CHECK(r.in_tier() == std::vector{key});
  CHECK(keeper->status().missing.empty());
  CHECK(comes_true([&] { return r.count(tier_event::kind::brought) == 1; }));
}

TEST_CASE("what the last process left behind is brought without being told") {
  rig r;
  r.make(5);
  const auto newest = r.make(6);
  const auto keeper = r.keeper();
  keeper->start();
  CHECK(comes_true([&] { return r.in_tier() == std::vector{newest}; }));
}

TEST_CASE("a tier that is down lags as data, is tried again, and catches up") {
  rig r;
  r.mood->is_down = true;
  const auto keeper = r.keeper();
  keeper->start();
  const auto key = r.make(5);
  keeper->committed(key);
  CHECK(comes_true([&] { return keeper->status().failures_in_a_row >= 3; }));
  const auto lag = keeper->status();
  CHECK(lag.failure == "the tier is down");
  CHECK(lag.missing == std::vector{key});
  CHECK(r.count(tier_event::kind::failed) >= 3);
  r.mood->is_down = false;
  CHECK(comes_true([&] { return r.in_tier() == std::vector{key}; }));
  CHECK(comes_true([&] { return keeper->status().failure.empty(); }));
  CHECK(comes_true([&] { return r.count(tier_event::kind::recovered) == 1; }));
}

TEST_CASE("a slow tier gets the newest next, and those in between never; committing waits for nothing") {
  rig r;
  const auto keeper = r.keeper();
  keeper->start();
  r.mood->is_held = true;
  keeper->committed(r.make(1));
  CHECK(comes_true([&] { return r.mood->puts == 1; }));
  for (const std::uint64_t step : {2, 3, 4}) keeper->committed(r.make(step));
  CHECK(keeper->status().missing == std::vector{at_step(4)});
  r.mood->is_held = false;
  CHECK(comes_true([&] { return r.in_tier() == std::vector{at_step(4), at_step(1)}; }));
}

TEST_CASE("a checkpoint that retention takes before its turn is passed over") {
  rig r;
  const auto keeper = r.keeper();
  keeper->start();
  keeper->committed(at_step(3));  // never there
  CHECK(comes_true([&] { return keeper->status().missing.empty(); }));
  CHECK(keeper->status().failure.empty());
  CHECK(r.in_tier().empty());
}

TEST_CASE("a tier keeps so many checkpoints of a job") {
  rig r;
  const auto keeper = r.keeper(2);
  keeper->start();
  for (const std::uint64_t step : {1, 2, 3, 4}) {
    keeper->committed(r.make(step));
    CHECK(comes_true([&] { return keeper->status().missing.empty(); }));
  }
  CHECK(comes_true([&] { return r.in_tier() == std::vector{at_step(4), at_step(3)}; }));
}

TEST_CASE(
    "the newest whole checkpoint is fetched, one that is damaged passed over, none older than what is here") {
  rig r;
  {
    const auto keeper = r.keeper();
    keeper->start();
    for (const std::uint64_t step : {1, 2}) {
      keeper->committed(r.make(step));
      CHECK(comes_true([&] { return keeper->status().missing.empty(); }));
    }
  }
  const temporary_folder fresh;
  const folder_store tier(r.there.path());
  CHECK(fetch_newest(tier, fresh.path(), "job-2", {}).value() == std::nullopt);
  CHECK(fetch_newest(tier, fresh.path(), "job-1", at_step(2)).value() == std::nullopt);
  const auto newest = read_manifest(object_folder(r.there.path()), at_step(2)).value();
  std::filesystem::resize_file(r.there.path() / "packs" / newest.chunks.back().record.pack, 80);
  CHECK(fetch_newest(tier, fresh.path(), "job-1", {}).value()->key() == at_step(1));
  CHECK(checkpoint_reader::open(fresh.path(), at_step(1))->verify().empty());
}

TEST_CASE("ending does not wait for a tier that is down") {
  rig r;
  r.mood->is_down = true;
  auto keeper = r.keeper();
  keeper->start();
  keeper->committed(r.make(1));
  CHECK(comes_true([&] { return keeper->status().failures_in_a_row >= 1; }));
  keeper.reset();
  CHECK(r.in_tier().empty());
}

TEST_CASE("a tier is made of its settings, or the wrong one is named") {
  tier_config c;
  c.name = "far";
  c.endpoint = "https://s3.example.com";
  c.bucket = "bucket";
  c.prefix = "a";
  CHECK(make_tier(c).value()->where() == "s3://bucket/a/ at s3.example.com");
  c.addressing = "host";
  CHECK(make_tier(c).value()->where() == "s3://bucket/a/ at bucket.s3.example.com");
  c.endpoint = "http://s3.example.com";
  CHECK(make_tier(c).failure().message.find("[tier.far]: the S3 tier's endpoint is http") !=
        std::string::npos);
  c.kind = "folder";
  c.folder = "/mnt/x";
  CHECK(make_tier(c).value()->where() == "/mnt/x");
}

TEST_CASE("a set brings to all its tiers, and fetches from the first that has something") {
  rig r;
  const temporary_folder first, second, fresh;
  const auto folder_tier = [](const char* name, const temporary_folder& where) {
    tier_config c;
    c.name = name;
    c.kind = "folder";
    c.folder = where.path().string();
    return c;
  };
  const std::vector tiers{folder_tier("one", first), folder_tier("two", second)};
  {
    const auto set = tier_set::make(tiers, r.here.path(), [](const tier_event&) {}).value();
    set->start();
    set->committed(r.make(1));
    CHECK(comes_true([&] {
      const auto all = set->status();
      return all[0].newest.contains("job-1") && all[1].newest.contains("job-1");
    }));
  }
  std::filesystem::remove_all(first.path() / "manifests");
  const auto set = tier_set::make(tiers, fresh.path(), [](const tier_event&) {}).value();
  CHECK(set->fetch_newest("job-1", {}).value().key() == at_step(1));
  CHECK(set->fetch_newest("job-1", at_step(1)) == std::nullopt);
  CHECK(set->fetch_newest("job-2", {}) == std::nullopt);
  CHECK(checkpoint_reader::open(fresh.path(), at_step(1))->verify().empty());
}
