#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <set>

#include "actors/base/log.hpp"
#include "storage/checkpoint_reader.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/index/checkpoint_index.hpp"
#include "storage/index/decision_log.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// Damage is logged as it is found; a test shows only its own failures.
struct quiet {
  quiet() {
    log::set_sink([](log::level, std::string_view) {}, log::level::error);
  }
} const silence;

struct test_store {
  temporary_folder folder;
  std::filesystem::path index_folder = folder.path() / "index";

  const std::filesystem::path& path() const { return folder.path(); }
  std::unique_ptr<checkpoint_index> open(checkpoint_index_options options = {}) const {
    return checkpoint_index::open(path(), index_folder, std::move(options)).value();
  }
  std::set<std::string> packs() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(packs_folder(path())))
      names.insert(entry.path().filename().string());
    return names;
  }
};

std::vector<checkpoint_key> keys_of(const checkpoint_index& index, const std::string& job = "") {
  std::vector<checkpoint_key> keys;
  const auto summaries = index.list(job).value();
  for (const auto& s : summaries) keys.push_back(s.key);
  return keys;
}

// Checkpoints of two workers that live through them all, as in a healthy run.
std::vector<manifest> commit_steps(const test_store& store, checkpoint_index& index,
                                   const std::vector<std::uint64_t>& steps) {
  checkpoint_writer a(store.path(), writer_a);
  checkpoint_writer b(store.path(), writer_b);
  std::vector<manifest> manifests;
  for (const auto step : steps) {
    manifests.push_back(written_checkpoint(a, b, at_step(step)));
    index.commit(manifests.back()).value();
  }
  return manifests;
}

// Runs `work` in a child that is to end by SIGKILL.
template <class Work>
void in_killed_child(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  REQUIRE(WTERMSIG(status) == SIGKILL);
}

checkpoint_index_options killed_at(index_stage at) {
  return {[at](index_stage stage) {
    if (stage == at) ::raise(SIGKILL);
  }};
}

void damage(const std::filesystem::path& path, std::uint64_t offset) {
  std::string bytes = read_file(path);
  bytes[offset] ^= 1;
  write_file(path, bytes);
}

}  // namespace

TEST_CASE("a committed checkpoint is listed, loaded and verified, also by the next coordinator") {
  test_store store;
  auto index = store.open();
  CHECK(keys_of(*index).empty());
  CHECK_FALSE(index->latest_valid("job-1").value());
  const auto written = commit_steps(store, *index, {100, 200});
  for (int life = 0; life < 2; ++life) {
    CHECK(keys_of(*index, "job-1") == std::vector{at_step(200), at_step(100)});
    CHECK(keys_of(*index, "job").empty());
    CHECK(index->get(at_step(100)).value() == written[0]);
    CHECK(index->latest_valid("job-1").value() == written[1]);
    const auto verified = index->verify(at_step(200)).value();
    CHECK(verified.failures.empty());
    CHECK(verified.chunks == 8);
    CHECK(verified.bytes == 256);
    CHECK(index->find_chunk(written[0].chunks[3].record.hash).value() == written[0].chunks[3].record);
    CHECK_FALSE(index->find_chunk(hash_of(std::string_view("nowhere"))).value());
    index.reset();
    index = store.open();
  }
  CHECK(index->list("job-1").value().front().bytes == 256);
  CHECK(index->get(at_step(7)).failure().code == errc::not_found);
}

TEST_CASE("chunks may be reported in any order, and a commit may be repeated") {
  test_store store;
  auto index = store.open();
  manifest m = written_checkpoint(store.path(), at_step(100));
  std::reverse(m.chunks.begin(), m.chunks.end());
  CHECK(index->commit(m));
  CHECK(index->commit(m));
  m.created_by = "another";
  CHECK(index->commit(m).failure().code == errc::already_exists);
  CHECK(keys_of(*index).size() == 1);
}

TEST_CASE("a checkpoint that is not whole is refused and leaves nothing behind") {
  test_store store;
  auto index = store.open();
  const manifest good = written_checkpoint(store.path(), at_step(100));
  const auto refused = [&](auto change, const std::string& why) {
    manifest m = good;
    change(m);
    const auto committed = index->commit(m);
    REQUIRE_FALSE(committed);
    CHECK_MESSAGE(contains(committed.failure().message, why), committed.failure().message);
    CHECK(keys_of(*index).empty());
    CHECK(list_checkpoints(object_folder(store.path()), "").value().empty());
  };
  refused([](manifest& m) { m.chunks.erase(m.chunks.begin() + 4); }, "expected tile 1 parameters");
  refused([](manifest& m) { m.chunks.push_back(m.chunks[0]); }, "there twice");
  refused([](manifest& m) { m.chunks[2].record.pack = to_string(pack_name{writer_b, 9}); }, "No such file");
  refused([](manifest& m) { m.chunks[2].record.offset += 1; }, "no record begins here");
  refused([](manifest& m) { m.chunks[2].record.hash = m.chunks[3].record.hash; }, "another chunk lies here");
  refused([](manifest& m) { m.chunks[7].record.offset = 1 << 20; }, "no room for a record");
  refused([](manifest& m) { m.created_by = "\xff"; }, "could not be read back");
  // The last chunk's pack lost its last byte.
  const auto path = packs_folder(store.path()) / good.chunks[7].record.pack;
  write_file(path, read_file(path).substr(0, read_file(path).size() - 1));
  refused([](manifest&) {}, "tile 1 ema");
}

TEST_CASE("a second process cannot open the index and is told why") {
  test_store store;
  const auto index = store.open();
  const auto second = checkpoint_index::open(store.path(), store.index_folder);
  REQUIRE_FALSE(second);
  CHECK(second.failure().code == errc::refused);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const auto opened = checkpoint_index::open(store.path(), store.index_folder);
    ::_exit(!opened && opened.failure().code == errc::refused &&
                    contains(opened.failure().message, "open in another process")
                ? 0
                : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("a coordinator killed at any stage of a commit leaves the checkpoint whole or no checkpoint") {
  for (const auto stage : {index_stage::manifest_put, index_stage::indexed}) {
    test_store store;
    const manifest m = written_checkpoint(store.path(), at_step(100));
    in_killed_child([&] { (void)store.open(killed_at(stage))->commit(m); });
    const auto index = store.open();
    CHECK(index->latest_valid("job-1").value() == m);
    CHECK(index->verify(m.key()).value().failures.empty());
    CHECK(index->find_chunk(m.chunks[0].record.hash).value() == m.chunks[0].record);
    CHECK(index->commit(m));
  }
}

TEST_CASE("retention keeps the newest, and frees the packs of live writers too") {
  test_store store;
  auto index = store.open();
  const auto written = commit_steps(store, *index, {100, 200, 300, 400});
  const std::vector live{writer_a, writer_b};
  auto report = index->drop_older_than("job-1", 2, live).value();
  CHECK(report.dropped == std::vector{at_step(200), at_step(100)});
  CHECK(keys_of(*index) == std::vector{at_step(400), at_step(300)});
  // A snapshot under way may build on them, until a further one is committed.
  CHECK(report.packs_removed.empty());
  CHECK(index->drop_older_than("job-1", 2, live).value().packs_removed.empty());
  index->commit(written_checkpoint(store.path(), at_step(500))).value();
  report = index->drop_older_than("job-1", 3, live).value();
  CHECK(report.packs_removed.size() == 4);
  CHECK(report.bytes_freed > 0);
  for (const auto step : {300, 400}) CHECK(index->verify(at_step(step)).value().failures.empty());
  CHECK_FALSE(index->find_chunk(written[0].chunks[0].record.hash).value());
  CHECK(checkpoint_reader::open(store.path(), at_step(100)).failure().code == errc::not_found);
  CHECK(object_folder(store.path()).list("tombstones").value().empty());
  CHECK(index->drop_older_than("job-1", 3, live).value().dropped.empty());
  CHECK(index->drop_older_than("job-1", 0, live).failure().code == errc::invalid_argument);
  CHECK(index->drop_older_than("another", 1, live).value().dropped.empty());
  index.reset();
  CHECK(keys_of(*store.open()) == std::vector{at_step(500), at_step(400), at_step(300)});
}

TEST_CASE("packs that may still be wanted stay") {
  test_store store;
  auto index = store.open();
  constexpr incarnation dead{0x3333, 1};
  constexpr incarnation alive{0x4444, 1};
  const auto orphan = [&](incarnation who, const checkpoint_key& key) {
    checkpoint_writer writer(store.path(), who);
    writer.begin(key);
    const auto pack = writer.append(tile_id(0), chunk_kind::ema, some_bytes(9, 1)).value().record.pack;
    writer.finish().value();
    return pack;
  };
  const auto garbage = orphan(dead, at_step(50));
  const auto in_use = orphan(alive, at_step(60));
  const auto pending = orphan({0x5555, 1}, at_step(350));
  const auto other_job = orphan({0x6666, 1}, {"job-2", {}, step_number(1)});
  const auto headless = to_string(pack_name{{0x7777, 1}, 1});
  write_file(packs_folder(store.path()) / headless, "PDRA");
  write_file(packs_folder(store.path()) / "notes.txt", "not a pack");
  commit_steps(store, *index, {100, 200, 300});
  CHECK(index->drop_older_than("job-1", 1, std::vector{alive}).value().packs_removed.empty());
  commit_steps(store, *index, {310});
  auto report = index->drop_older_than("job-1", 2, std::vector{alive}).value();
  std::sort(report.packs_removed.begin(), report.packs_removed.end());
  const auto left = store.packs();
  CHECK(report.packs_removed.size() == 6);
  for (const auto& name : {garbage, headless}) CHECK_FALSE(left.contains(name));
  for (const auto& name : {in_use, pending, other_job, std::string("notes.txt")}) CHECK(left.contains(name));
  CHECK(index->verify(at_step(300)).value().failures.empty());
  // Once its writer is gone, nothing protects it any more.
  CHECK(index->drop_older_than("job-1", 2, {}).value().packs_removed == std::vector{in_use});
}

TEST_CASE("while a manifest cannot be read, packs it may refer to stay; it goes when it is old") {
  test_store store;
  auto index = store.open();
  commit_steps(store, *index, {100, 200});
  REQUIRE(object_folder(store.path()).put_if_absent(manifest_object(at_step(250)), "of another version"));
  auto report = index->drop_older_than("job-1", 1, {}).value();
  CHECK(report.dropped == std::vector{at_step(100)});
  CHECK(report.packs_removed.empty());
  checkpoint_writer third(store.path(), {0x8888, 1});
  checkpoint_writer fourth(store.path(), {0x9999, 1});
  REQUIRE(index->commit(written_checkpoint(third, fourth, at_step(300))));
  report = index->drop_older_than("job-1", 1, {}).value();
  CHECK(report.dropped == std::vector{at_step(250), at_step(200)});
  CHECK(report.packs_removed.size() == 4);
}

TEST_CASE("a pack shared by two checkpoints stays until both are gone") {
  test_store store;
  auto index = store.open();
  manifest first = written_checkpoint(store.path(), at_step(100));
  manifest second = first;
  second.standing.step = step_number(200);
  REQUIRE(index->commit(first));
  REQUIRE(index->commit(second));
  CHECK(index->drop_older_than("job-1", 1, {}).value().packs_removed.empty());
  CHECK(index->verify(at_step(200)).value().failures.empty());
  checkpoint_writer third(store.path(), {0x8888, 1});
  checkpoint_writer fourth(store.path(), {0x9999, 1});
  REQUIRE(index->commit(written_checkpoint(third, fourth, at_step(300))));
  CHECK(index->drop_older_than("job-1", 1, {}).value().packs_removed.size() == 2);
}

TEST_CASE("a coordinator killed at any stage of a deletion finishes it when it is back") {
  test_store full;
  commit_steps(full, *full.open(), {100, 200, 300});
  for (const auto stage : {index_stage::tombstones_put, index_stage::unindexed,
                           index_stage::manifests_removed, index_stage::tombstones_removed}) {
    test_store store;
    std::filesystem::copy(full.path(), store.path(), std::filesystem::copy_options::recursive);
    in_killed_child([&] { (void)store.open(killed_at(stage))->drop_older_than("job-1", 1, {}); });
    auto index = store.open();
    CHECK(keys_of(*index) == std::vector{at_step(300)});
    CHECK(object_folder(store.path()).list("tombstones").value().empty());
    CHECK(list_checkpoints(object_folder(store.path()), "").value() == std::vector{at_step(300)});
    CHECK(index->drop_older_than("job-1", 1, {}).value().packs_removed.size() == 4);
    CHECK(store.packs().size() == 2);
    CHECK(index->verify(at_step(300)).value().failures.empty());
  }
}

TEST_CASE("a damaged checkpoint is passed over and does not push out a sound one") {
  test_store store;
  auto index = store.open();
  const auto written = commit_steps(store, *index, {100, 200, 300});
  std::filesystem::remove(packs_folder(store.path()) / written[2].chunks[0].record.pack);
  CHECK(index->latest_valid("job-1").value() == written[1]);
  CHECK(index->drop_older_than("job-1", 1, {}).value().dropped == std::vector{at_step(100)});
  CHECK(index->latest_valid("job-1").value() == written[1]);
  damage(store.path() / manifest_object(at_step(200)), 30);
  CHECK_FALSE(index->latest_valid("job-1").value());
  CHECK_FALSE(index->verify(at_step(200)));
}

TEST_CASE("verifying finds a flipped bit that no header shows") {
  test_store store;
  auto index = store.open();
  const auto written = commit_steps(store, *index, {100});
  const chunk_record& hit = written[0].chunks[5].record;
  damage(packs_folder(store.path()) / hit.pack, hit.offset + record_header_bytes);
  const auto verified = index->verify(at_step(100)).value();
  REQUIRE(verified.failures.size() == 1);
  CHECK(contains(verified.failures[0], "tile 1 first_moment"));
}

TEST_CASE("a lost or damaged index is rebuilt from the manifests") {
  test_store store;
  const auto written = commit_steps(store, *store.open(), {100, 200, 300});
  const auto is_whole = [&] {
    auto index = store.open();
    CHECK(keys_of(*index).size() == 3);
    CHECK(index->find_chunk(written[0].chunks[0].record.hash).value() == written[0].chunks[0].record);
  };
  std::filesystem::remove_all(store.index_folder);
  is_whole();
  for (const auto& entry : std::filesystem::directory_iterator(store.index_folder))
    if (entry.path().filename().string().starts_with("MANIFEST")) write_file(entry.path(), "damaged");
  is_whole();
  REQUIRE(store.open()->rebuild_index());
  is_whole();
  CHECK(store.open()->drop_older_than("job-1", 1, {}).value().packs_removed.size() == 4);
}

TEST_CASE("what is in the folder of manifests but is none is left out, and the rest is indexed") {
  test_store store;
  const manifest m = written_checkpoint(store.path(), at_step(100));
  const object_folder objects(store.path());
  REQUIRE(objects.put_if_absent(manifest_object(at_step(100)), encode(m)));
  REQUIRE(objects.put_if_absent(manifest_object(at_step(200)), "{}"));
  REQUIRE(objects.put_if_absent("manifests/readme", "hello"));
  CHECK(keys_of(*store.open()) == std::vector{at_step(100)});
}

TEST_CASE("states and events survive a restart, events in order") {
  temporary_folder folder;
  auto log = decision_log::open(folder.path()).value();
  CHECK(log->last_sequence() == 0);
  CHECK(log->read_events(0, 10).value().empty());
  CHECK_FALSE(log->get_state("era").value());
  CHECK(log->put_state("era", "1.1", true));
  CHECK(log->append_event("first").value() == 1);
  CHECK(log->append_event(std::string("\0\xff", 2)).value() == 2);
  CHECK(log->write({.states = {{"era", "1.2"}, {"job/a", "x"}, {"job/b", "y"}},
                    .erased = {"none"},
                    .events = {"third"}},
                   true)
            .value() == 3);
  log.reset();
  log = decision_log::open(folder.path()).value();
  CHECK(log->get_state("era").value() == "1.2");
  CHECK(log->list_states("job/").value() ==
        std::vector<std::pair<std::string, std::string>>{{"job/a", "x"}, {"job/b", "y"}});
  CHECK(log->read_events(2, 10).value() ==
        std::vector<logged_event>{{2, std::string("\0\xff", 2)}, {3, "third"}});
  CHECK(log->read_events(1, 1).value() == std::vector<logged_event>{{1, "first"}});
  CHECK(log->read_events(4, 10).value().empty());
  CHECK(log->write({.states = {}, .erased = {"job/a"}, .events = {}}, false).value() == 3);
  CHECK(log->list_states("job/").value().size() == 1);
}

TEST_CASE("only so many events are kept, and their numbers go on") {
  temporary_folder folder;
  auto log = decision_log::open(folder.path(), {.events_max = 10}).value();
  for (int i = 1; i <= 1000; ++i) REQUIRE(log->append_event(std::to_string(i)));
  CHECK(log->write({.states = {}, .erased = {}, .events = {"a", "b", "c"}}, false).value() == 1003);
  auto events = log->read_events(0, 100).value();
  CHECK(events.size() == 10);
  CHECK(events.front() == logged_event{994, "994"});
  CHECK(events.back() == logged_event{1003, "c"});
  log.reset();
  log = decision_log::open(folder.path(), {.events_max = 3}).value();
  CHECK(log->append_event("next").value() == 1004);
  CHECK(log->read_events(0, 100).value().size() == 3);
}

TEST_CASE("an entry beyond its limit is refused and the log goes on") {
  temporary_folder folder;
  CHECK(decision_log::open(folder.path(), {.events_max = 0}).failure().code == errc::invalid_argument);
  auto log = decision_log::open(folder.path()).value();
  const std::string large(log_entry_bytes_max + 1, 'x');
  CHECK(log->append_event(large).failure().code == errc::exhausted);
  CHECK(log->put_state("k", large, false).failure().code == errc::exhausted);
  CHECK(log->append_event("small").value() == 1);
  CHECK(decision_log::open(folder.path()).failure().code == errc::refused);
}

TEST_CASE("a log whose writer is killed keeps every event that was appended, and no other") {
  for (const int kill_after : {1, 7, 300}) {
    temporary_folder folder;
    int reports[2];
    REQUIRE(::pipe(reports) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      auto log = decision_log::open(folder.path()).value();
      for (std::uint64_t i = 1;; ++i) {
        const bool is_written = log->write({.states = {{"last", std::to_string(i)}},
                                            .erased = {},
                                            .events = {std::string(200, 'e') + std::to_string(i)}},
                                           i % 50 == 0)
                                    .has_value();
        if (!is_written || ::write(reports[1], &i, sizeof i) != sizeof i) ::_exit(1);
      }
    }
    ::close(reports[1]);
    std::uint64_t reported = 0;
    for (int i = 0; i < kill_after; ++i)
      REQUIRE(::read(reports[0], &reported, sizeof reported) == sizeof reported);
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(reports[0], &reported, sizeof reported) == sizeof reported) {}
    ::close(reports[0]);

    const auto log = decision_log::open(folder.path()).value();
    const auto events = log->read_events(1, 1000000).value();
    // One more than reported may be there: written, and killed before it could say so.
    CHECK(events.size() >= reported);
    CHECK(events.size() <= reported + 1);
    for (std::size_t i = 0; i < events.size(); ++i)
      REQUIRE(events[i] == logged_event{i + 1, std::string(200, 'e') + std::to_string(i + 1)});
    CHECK(log->get_state("last").value() == std::to_string(events.size()));
  }
}
