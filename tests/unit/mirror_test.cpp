// Checkpoints on their way to a tier and back. Whoever writes dies at each stage; the next one goes on.
#include "storage/s3/mirror.hpp"

#include <doctest/doctest.h>

#include <random>

#include "storage/checkpoint_reader.hpp"
#include "storage/folder_store.hpp"
#include "tests/unit/fake_s3.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;
using test::fake_s3;

namespace {

struct died {};

// Dies at the `countdown`-th stage it comes to.
mirror_options dying_after(int& countdown) {
  mirror_options o;
  o.piece_bytes = 100;
  o.at_stage = [&countdown](mirror_stage) {
    if (countdown-- == 0) throw died{};
  };
  return o;
}

void put_locally(const std::filesystem::path& store, const manifest& m) {
  manifest sorted = m;
  sort_chunks(sorted);
  object_folder(store).put_if_absent(manifest_object(m.key()), encode(sorted)).value();
}

struct rig {
  temporary_folder here, there, elsewhere;
  folder_store tier{there.path()};

  mirror between(mirror_options o = {}) { return {tier, here.path(), std::move(o)}; }
  mirror back(mirror_options o = {}) { return {tier, elsewhere.path(), std::move(o)}; }
  checkpoint_key make(std::uint64_t step) {
    const auto key = at_step(step);
    put_locally(here.path(), written_checkpoint(here.path(), key));
    return key;
  }
  std::size_t packs_there() { return tier.list("packs").value().size(); }
};

bool is_whole(const std::filesystem::path& store, const checkpoint_key& key) {
  auto reader = checkpoint_reader::open(store, key);
  return reader.has_value() && reader->verify().empty();
}

// All that a tier shows must be whole.
void check_all_whole(rig& r) {
  const auto shown = r.between().list("").value();
  for (const auto& key : shown) {
    const temporary_folder fresh;
    CHECK(mirror(r.tier, fresh.path()).fetch(key).has_value());
  }
}

void flip_byte(const std::filesystem::path& file, std::size_t at) {
  auto bytes = read_file(file);
  bytes.at(at) = static_cast<char>(bytes.at(at) ^ 1);
  write_file(file, bytes);
}

}  // namespace

TEST_CASE("a checkpoint goes to the tier and comes back, bit for bit, on another machine") {
  rig r;
  const auto key = r.make(5);
  const auto report = r.between().push(key).value();
  CHECK(report.packs_sent == 2);
  CHECK(r.between().list("").value() == std::vector{key});
  const auto m = r.back().fetch(key).value();
  CHECK(m == read_manifest(object_folder(r.here.path()), key).value());
  CHECK(is_whole(r.elsewhere.path(), key));
  CHECK_FALSE(std::filesystem::exists(r.elsewhere.path() / ".writing" / "fetch"));
  const auto packs = r.tier.list("packs").value();
  for (const auto& pack : packs)
    CHECK(read_file(r.elsewhere.path() / pack.name) == read_file(r.here.path() / pack.name));
}

TEST_CASE("what a difference builds on goes along, and stays while it is needed") {
  rig r;
  checkpoint_writer writer(r.here.path(), writer_a);
  std::vector<checkpoint_key> keys;
  for (std::uint32_t step = 1; step <= 3; ++step) {
    keys.push_back(at_step(step));
    manifest m = empty_manifest(keys.back());
    m.tiles = {{0, 1024, 0}};
    m.arrays = {{chunk_kind::parameters, 4}};
    writer.begin(m.key());
    m.chunks = {writer.append(tile_id(0), chunk_kind::parameters, weights_at(1024, step)).value()};
    m.bases = writer.bases_of(m.chunks[0].record);
    writer.finish().value();
    CHECK(m.bases.size() == step - 1);
    put_locally(r.here.path(), m);
  }
  // Only the last one is sent, with all that it needs.
  CHECK(r.between().push(keys.back()).value().packs_sent == 3);
  r.back().fetch(keys.back()).value();
  CHECK(is_whole(r.elsewhere.path(), keys.back()));
  r.between().push(keys.front()).value();
  CHECK(r.between().remove(keys.front()).value().packs_removed.empty());
  check_all_whole(r);
}

TEST_CASE("what is there is not sent again, and nothing is fetched twice") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  CHECK(r.between().push(key).value().packs_sent == 0);
  r.back().fetch(key).value();
  int pieces = 0;
  mirror_options o;
  o.at_stage = [&](mirror_stage s) { pieces += s == mirror_stage::piece_fetched ? 1 : 0; };
  r.back(o).fetch(key).value();
  CHECK(pieces == 0);
}

TEST_CASE("a push that dies at any stage shows nothing that is half there, and the next one finishes it") {
  bool has_died = true;
  for (int stage = 0; has_died; ++stage) {
    rig r;
    const auto first = r.make(5);
    r.between().push(first).value();
    const auto second = r.make(6);
    int countdown = stage;
    has_died = false;
    try {
      r.between(dying_after(countdown)).push(second).value();
    } catch (const died&) { has_died = true; }
    CAPTURE(stage);
    check_all_whole(r);
    r.between().push(second).value();
    CHECK(r.between().list("").value() == std::vector{second, first});
    check_all_whole(r);
    REQUIRE(stage < 20);
  }
}

TEST_CASE("a fetch that dies at any stage shows nothing that is half there, and the next one goes on") {
  bool has_died = true;
  int pieces_in_all = 0;
  for (int stage = 0; has_died; ++stage) {
    rig r;
    const auto key = r.make(5);
    r.between().push(key).value();
    int countdown = stage;
    int pieces_before = 0;
    has_died = false;
    try {
      auto o = dying_after(countdown);
      o.at_stage = [&, die = o.at_stage](mirror_stage s) {
        pieces_before += s == mirror_stage::piece_fetched ? 1 : 0;
        die(s);
      };
      r.back(o).fetch(key).value();
    } catch (const died&) { has_died = true; }
    CAPTURE(stage);
    const auto shown = list_checkpoints(object_folder(r.elsewhere.path()), "").value();
    CHECK((shown.empty() || is_whole(r.elsewhere.path(), key)));
    int pieces_after = 0;
    mirror_options o;
    o.piece_bytes = 100;
    o.at_stage = [&](mirror_stage s) { pieces_after += s == mirror_stage::piece_fetched ? 1 : 0; };
    r.back(o).fetch(key).value();
    CHECK(is_whole(r.elsewhere.path(), key));
    if (pieces_in_all == 0) pieces_in_all = pieces_before + pieces_after;
    CHECK(pieces_before + pieces_after == pieces_in_all);  // none is fetched twice
    REQUIRE(stage < 100);
  }
  CHECK(pieces_in_all > 4);
}

TEST_CASE("a removal that dies at any stage is finished by the next, and hurts no other checkpoint") {
  bool has_died = true;
  for (int stage = 0; has_died; ++stage) {
    rig r;
    std::vector<checkpoint_key> keys;
    for (const std::uint64_t step : {5, 6, 7}) keys.push_back(r.make(step));
    for (const auto& key : keys) r.between().push(key).value();
    int countdown = stage;
    has_died = false;
    try {
      r.between(dying_after(countdown)).remove(keys[0]).value();
    } catch (const died&) { has_died = true; }
    CAPTURE(stage);
    check_all_whole(r);
    r.between().keep_newest(keys[0].job, 1).value();
    CHECK(r.between().list("").value() == std::vector{keys[2]});
    CHECK(r.tier.list("tombstones").value().empty());
    CHECK(r.packs_there() == 2);
    check_all_whole(r);
    REQUIRE(stage < 20);
  }
}

TEST_CASE(
    "removals that a crash left are finished on request, and such a checkpoint is not pushed meanwhile") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  int countdown = 0;
  CHECK_THROWS_AS(r.between(dying_after(countdown)).remove(key), died);
  CHECK(r.between().list("").value().empty());
  CHECK(r.between().push(key).failure().code == errc::refused);
  r.between().finish_removals().value();
  r.between().push(key).value();
  check_all_whole(r);
}

TEST_CASE("packs that another checkpoint needs outlive the one that brought them") {
  rig r;
  const auto first = r.make(5);
  // The second refers to the first one's chunks: nothing has changed.
  auto m = read_manifest(object_folder(r.here.path()), first).value();
  m.standing.step = step_number(6);
  put_locally(r.here.path(), m);
  r.between().push(first).value();
  r.between().push(m.key()).value();
  const auto report = r.between().remove(first).value();
  CHECK(report.packs_removed.empty());
  check_all_whole(r);
  CHECK(r.between().remove(m.key()).value().packs_removed.size() == 2);
  CHECK(r.packs_there() == 0);
}

TEST_CASE("packs on their way to a manifest, and those of other jobs, are left alone") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  int countdown = 0;
  const auto next = r.make(6);
  CHECK_THROWS_AS(r.between(dying_after(countdown)).push(next), died);
  const checkpoint_key foreign{"other", timeline_number(0), step_number(1)};
  put_locally(r.here.path(), written_checkpoint(r.here.path(), foreign));
  countdown = 0;
  CHECK_THROWS_AS(r.between(dying_after(countdown)).push(foreign), died);
  CHECK(r.packs_there() == 4);
  r.between().remove(key).value();
  CHECK(r.packs_there() == 2);
}

TEST_CASE("while a manifest of the tier cannot be read, no pack is removed") {
  rig r;
  const auto first = r.make(5), second = r.make(6);
  r.between().push(first).value();
  r.between().push(second).value();
  flip_byte(r.there.path() / manifest_object(second), 20);
  const auto removed = r.between().remove(first);
  REQUIRE_FALSE(removed.has_value());
  CHECK(removed.failure().message.find("no packs are removed") != std::string::npos);
  CHECK(r.packs_there() == 4);
}

TEST_CASE("a pack that has grown since it was put is put again") {
  rig r;
  checkpoint_writer a(r.here.path(), writer_a);
  checkpoint_writer b(r.here.path(), writer_b);
  const auto key = at_step(5);
  put_locally(r.here.path(), written_checkpoint(a, b, key));
  r.between().push(key).value();
  const auto pack = r.tier.list("packs").value().front();
  const auto whole = read_file(r.here.path() / pack.name);
  write_file(r.there.path() / pack.name, whole.substr(0, whole.size() / 2));
  CHECK(r.between().push(key).value().packs_sent == 1);
  check_all_whole(r);
}

TEST_CASE("damage in the tier is found, nothing of it becomes a checkpoint, and a sound copy replaces it") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  const auto pack = r.tier.list("packs").value().front().name;
  const auto size = read_file(r.there.path() / pack).size();
  for (std::size_t at = 0; at < size; at += 37) {
    flip_byte(r.there.path() / pack, at);
    const auto fetched = r.back().fetch(key);
    CAPTURE(at);
    CHECK_FALSE(fetched.has_value());
    CHECK(list_checkpoints(object_folder(r.elsewhere.path()), "").value().empty());
    flip_byte(r.there.path() / pack, at);
  }
  r.back().fetch(key).value();
  CHECK(is_whole(r.elsewhere.path(), key));
}

TEST_CASE("a pack or a manifest that is damaged here is replaced by the tier's") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  const auto pack = r.tier.list("packs").value().front().name;
  flip_byte(r.here.path() / pack, 200);
  CHECK_FALSE(is_whole(r.here.path(), key));
  r.between().fetch(key).value();
  CHECK(is_whole(r.here.path(), key));
  flip_byte(r.here.path() / manifest_object(key), 30);
  r.between().fetch(key).value();
  CHECK(is_whole(r.here.path(), key));
}

TEST_CASE("a checkpoint that is damaged here is not pushed, nor over one of another content") {
  rig r;
  const auto key = r.make(5);
  r.between().push(key).value();
  auto other = written_checkpoint(r.elsewhere.path(), key);
  other.created_by = "another cluster";
  put_locally(r.elsewhere.path(), other);
  CHECK(r.back().push(key).failure().code == errc::already_exists);
  const auto next = r.make(6);
  auto m = read_manifest(object_folder(r.here.path()), next).value();
  std::filesystem::resize_file(r.here.path() / "packs" / m.chunks.back().record.pack, 100);
  CHECK_FALSE(r.between().push(next).has_value());
  CHECK(r.between().list("").value() == std::vector{key});
}

TEST_CASE("lists are newest first, of one job or of all") {
  rig r;
  for (const std::uint64_t step : {5, 7, 6}) r.between().push(r.make(step)).value();
  CHECK(r.between().list("job-1").value() == std::vector{at_step(7), at_step(6), at_step(5)});
  CHECK(r.between().list("job-2").value().empty());
  CHECK_FALSE(r.between().list("../x").has_value());
  CHECK_FALSE(r.between().keep_newest("job-1", 0).has_value());
}

TEST_CASE("over S3 through a proxy that fails at random, checkpoints arrive and come back whole") {
  fake_s3 service;
  test::fault_proxy proxy(service.port());
  auto options = test::options_at(proxy.url());
  options.retry.attempts_max = 30;
  const auto tier = test::store_at(options);
  auto random = std::make_shared<std::mt19937>(11);
  auto mutex = std::make_shared<std::mutex>();
  const auto draw = [random, mutex] {
    const std::lock_guard lock(*mutex);
    return (*random)() % 10;
  };
  proxy.set(
      [draw](const test::web_request&) -> std::optional<test::web_reply> {
        const auto n = draw();
        if (n == 0) return test::web_reply{503, "<Error><Code>SlowDown</Code></Error>"};
        test::web_reply dropped;
        dropped.is_dropped = true;
        return n == 1 ? std::optional(dropped) : std::nullopt;
      },
      [draw](const test::web_request&, test::web_reply& reply) {
        const auto n = draw();
        reply.is_dropped = reply.is_dropped || n == 0;
        if (n == 1 && !reply.body.empty()) reply.cut_after = reply.body.size() / 2;
      });
  const temporary_folder here, there;
  std::vector<checkpoint_key> keys;
  for (std::uint64_t step = 1; step <= 6; ++step) {
    keys.push_back(at_step(step));
    put_locally(here.path(), written_checkpoint(here.path(), keys.back()));
    mirror(*tier, here.path()).push(keys.back()).value();
  }
  mirror(*tier, here.path()).keep_newest("job-1", 3).value();
  mirror back(*tier, there.path());
  const auto shown = back.list("").value();
  CHECK(shown == std::vector{keys[5], keys[4], keys[3]});
  for (const auto& key : shown) {
    back.fetch(key).value();
    CHECK(is_whole(there.path(), key));
  }
  CHECK(service.objects().size() == 3 * 3);
}
