#include <doctest/doctest.h>

#include "storage/checkpoint_reader.hpp"
#include "storage/index/checkpoint_index.hpp"
#include "storage/tags.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;

namespace {

constexpr std::uint64_t hour_ms = 3'600'000;

struct made {
  std::uint64_t step;
  std::uint64_t hour;
  bool is_sound = true;
  bool is_tagged = false;
};

// Given oldest first, for reading.
std::vector<std::uint64_t> dropped(std::vector<made> all, retention_policy policy) {
  std::vector<retention_candidate> candidates;
  for (auto c = all.rbegin(); c != all.rend(); ++c)
    candidates.push_back({at_step(c->step), c->hour * hour_ms + c->step, c->is_sound, c->is_tagged});
  std::vector<std::uint64_t> steps;
  for (const auto& key : choose(candidates, policy).dropped) steps.push_back(key.step.value);
  return steps;
}

}  // namespace

TEST_CASE("the newest are kept, damaged ones beside them, and what is tagged") {
  using steps = std::vector<std::uint64_t>;
  CHECK(dropped({{1, 0}, {2, 0}, {3, 0}}, {3, 0}).empty());
  CHECK(dropped({{1, 0}, {2, 0}, {3, 0}}, {2, 0}) == steps{1});
  CHECK(dropped({{1, 0}, {2, 0}, {3, 0, false}}, {1, 0}) == steps{1});
  CHECK(dropped({{1, 0}, {2, 0, true, true}, {3, 0}, {4, 0}}, {1, 0}) == steps{3, 1});
  CHECK(dropped({{1, 0, false}, {2, 0, false}}, {1, 0}).empty());
}

TEST_CASE("the first of each so many hours is kept, and which one that is never changes") {
  using steps = std::vector<std::uint64_t>;
  std::vector<made> all;
  std::vector<std::uint64_t> gone;
  for (std::uint64_t step = 0; step < 48; ++step) {
    all.push_back({step, step / 4});  // four an hour
    for (const auto s : dropped(all, {2, 3})) {
      gone.push_back(s);
      std::erase_if(all, [&](const made& m) { return m.step == s; });
    }
  }
  steps left;
  for (const auto& m : all) left.push_back(m.step);
  CHECK(left == steps{0, 12, 24, 36, 46, 47});
  CHECK(dropped({{1, 0, false}, {2, 0}, {3, 0}, {4, 5}}, {1, 3}) == steps{3, 1});
}

TEST_CASE("a tag keeps a checkpoint until it is taken away, and names it") {
  temporary_folder store;
  temporary_folder index_folder;
  auto index = checkpoint_index::open(store.path(), index_folder.path() / "index").value();
  const object_folder objects(store.path());
  for (const auto step : {10, 20, 30}) index->commit(written_checkpoint(store.path(), at_step(step))).value();

  REQUIRE(add_tag(objects, at_step(10), "best"));
  CHECK(add_tag(objects, at_step(10), "best"));
  CHECK(add_tag(objects, at_step(20), "best").failure().code == errc::already_exists);
  CHECK(add_tag(objects, at_step(99), "other").failure().code == errc::not_found);
  CHECK(list_tags(objects, "job-1").value().size() == 1);
  for (const auto* wrong : {"", "9lives", "../x", "a/b"}) CHECK_FALSE(add_tag(objects, at_step(10), wrong));

  CHECK(index->would_drop("job-1", {1, 0}).value() == std::vector{at_step(20)});
  CHECK(index->retain("job-1", {1, 0}, {}).value().dropped == std::vector{at_step(20)});
  CHECK(index->verify(at_step(10)).value().failures.empty());
  CHECK(add_tag(objects, at_step(20), "late").failure().code == errc::not_found);

  CHECK(find_checkpoint(objects, "job-1").value() == at_step(30));
  CHECK(find_checkpoint(objects, "job-1@10").value() == at_step(10));
  CHECK(find_checkpoint(objects, "job-1@10.0").value() == at_step(10));
  CHECK(find_checkpoint(objects, "job-1:best").value() == at_step(10));
  CHECK(find_checkpoint(objects, "job-1@20").failure().message.find("job-1@30.0, job-1@10.0") !=
        std::string::npos);
  for (const auto* missing : {"job-1:none", "job-1@10.7", "job-2"})
    CHECK(find_checkpoint(objects, missing).failure().code == errc::not_found);
  for (const auto* wrong : {"job-1@", "job-1@x", "job-1@10.", "job-1@10.x", "", "../x"})
    CHECK(find_checkpoint(objects, wrong).failure().code == errc::invalid_argument);

  REQUIRE(remove_tag(objects, "job-1", "best"));
  CHECK(remove_tag(objects, "job-1", "best").failure().code == errc::not_found);
  CHECK(index->retain("job-1", {1, 0}, {}).value().dropped == std::vector{at_step(10)});
}

TEST_CASE("a checkpoint that is tagged while it is being dropped stays, or the tag is refused") {
  temporary_folder store;
  temporary_folder index_folder;
  const object_folder objects(store.path());
  result<void> tagged = error{errc::refused, "not tried"};
  auto index = checkpoint_index::open(store.path(), index_folder.path() / "index", {[&](index_stage stage) {
                                        // Another process has found no tombstone just before it came.
                                        if (stage == index_stage::tombstones_put)
                                          tagged = objects.put_if_absent("tags/job-1/late", "0 10\n");
                                      }})
                   .value();
  for (const auto step : {10, 20}) index->commit(written_checkpoint(store.path(), at_step(step))).value();
  CHECK(index->retain("job-1", {1, 0}, {}).value().dropped.empty());
  REQUIRE(tagged);
  CHECK(index->verify(at_step(10)).value().failures.empty());
  CHECK(list_checkpoints(objects, "job-1").value().size() == 2);
}
