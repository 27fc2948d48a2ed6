// Snapshots that share chunks and build on each other, with retention at work.
#include <doctest/doctest.h>

#include <map>

#include "storage/checkpoint_reader.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/index/checkpoint_index.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;

namespace {

constexpr std::uint32_t floats = 1024;  // of the one tile
const std::vector<incarnation> nobody;
const std::vector<incarnation> somebody{{0x9999, 1}};

// Moments and the like do not move, the parameters do: "frozen" is the one kind, "trained" the other.
std::vector<std::byte> state_at(std::uint32_t step, bool trains = true) {
  std::vector<std::byte> state;
  for (std::uint32_t array = 0; array < all_kinds.size(); ++array) {
    const auto bytes = weights_at(floats, trains && array == 0 ? step : 0, array * 50);
    state.insert(state.end(), bytes.begin(), bytes.end());
  }
  return state;
}

manifest manifest_at(const checkpoint_key& key) {
  manifest m = empty_manifest(key);
  m.tiles = {{0, floats, 0}};
  return m;
}

class history {
 public:
  explicit history(writer_options options = {}) : writer(root.path(), writer_a, options) {
    index = checkpoint_index::open(root.path(), index_root.path() / "index").value();
  }
  manifest snapshot(const checkpoint_key& key, const std::vector<std::byte>& state,
                    const std::optional<checkpoint_key>& origin = {}) {
    manifest m = manifest_at(key);
    writer.begin(key, origin);
    m.chunks = writer.append_tile(tile_id(0), blob::copy_of(state)).value();
    writer.finish().value();
    for (const auto& c : m.chunks)
      for (auto& base : writer.bases_of(c.record)) m.bases.push_back(std::move(base));
    return m;
  }
  void save(const checkpoint_key& key, const std::vector<std::byte>& state,
            const std::optional<checkpoint_key>& origin = {}) {
    index->commit(snapshot(key, state, origin)).value();
    saved[key] = state;
  }
  bool loads(const checkpoint_key& key) {
    auto reader = checkpoint_reader::open(root.path(), key);
    if (!reader) return false;
    const auto state = reader->load_tile(tile_id(0));
    return state && *state == saved.at(key);
  }
  std::size_t chain(const checkpoint_key& key) {
    const auto m = index->get(key).value();
    return m.chain_of(m.chunks[0].record).size();
  }
  std::size_t packs() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(packs_folder(root.path())))
      ++n;
    return n;
  }

  temporary_folder root;
  temporary_folder index_root;
  checkpoint_writer writer;
  std::unique_ptr<checkpoint_index> index;
  std::map<checkpoint_key, std::vector<std::byte>> saved;
};

}  // namespace

TEST_CASE("what has not changed is not written again") {
  history h;
  h.save(at_step(10), state_at(0, false));
  const auto first = h.writer.bytes_written();
  CHECK(first > 0);
  h.save(at_step(20), state_at(0, false));
  CHECK(h.writer.bytes_written() == 0);
  h.save(at_step(30), state_at(1));
  CHECK(h.writer.bytes_written() > 0);
  CHECK(h.writer.bytes_written() < first / 4);
  const auto frozen = h.index->get(at_step(30)).value().chunks[2].record;
  CHECK(frozen == h.index->get(at_step(10)).value().chunks[2].record);
  for (const auto step : {10U, 20U, 30U}) CHECK(h.loads(at_step(step)));
}

TEST_CASE("arrays that are equal are stored once") {
  history h;
  auto state = state_at(0);
  std::copy_n(state.begin(), floats * 4, state.begin() + floats * 4);
  h.save(at_step(10), state);
  const auto m = h.index->get(at_step(10)).value();
  CHECK(m.chunks[0].record == m.chunks[1].record);
  CHECK(m.stored_bytes() < m.total_bytes() * 3 / 4);
  CHECK(h.loads(at_step(10)));
}

TEST_CASE("differences build on each other up to a bound, and each checkpoint loads") {
  for (const std::size_t chain_max : {std::size_t{0}, std::size_t{1}, std::size_t{3}}) {
    history h({.chain_max = chain_max});
    std::size_t longest = 0;
    for (std::uint32_t step = 1; step <= 12; ++step) {
      h.save(at_step(step), state_at(step));
      longest = std::max(longest, h.chain(at_step(step)));
    }
    CHECK(longest == chain_max);
    for (const auto& [key, state] : h.saved) CHECK(h.loads(key));
    for (const auto& [key, state] : h.saved) CHECK(h.index->verify(key).value().failures.empty());
  }
}

TEST_CASE("a base that is not in memory is read back") {
  history h({.base_bytes_max = 0});
  for (std::uint32_t step = 1; step <= 4; ++step) h.save(at_step(step), state_at(step));
  CHECK(h.chain(at_step(4)) == 3);
  for (const auto& [key, state] : h.saved) CHECK(h.loads(key));
}

TEST_CASE("packs stay as long as a kept checkpoint builds on them, and go then") {
  history h({.chain_max = 3});
  for (std::uint32_t step = 1; step <= 30; ++step) {
    h.save(at_step(step), state_at(step));
    h.index->drop_older_than("job-1", 2, nobody).value();
    CAPTURE(step);
    CHECK(h.loads(at_step(step)));
    if (step > 1) CHECK(h.loads(at_step(step - 1)));
    CHECK(h.packs() <= 6);  // two of a chain of four each, and the first, which the frozen arrays are in
  }
  CHECK_FALSE(h.loads(at_step(28)));
  h.index.reset();
  h.index = checkpoint_index::open(h.root.path(), h.index_root.path() / "other").value();
  CHECK(h.index->verify(at_step(30)).value().failures.empty());
}

TEST_CASE(
    "a snapshot that was begun on a checkpoint can be committed though that one has been dropped since") {
  history h;
  h.save(at_step(1), state_at(1));
  checkpoint_writer slow(h.root.path(), writer_b);
  slow.begin(at_step(3));
  // Meanwhile another is committed, and the first one goes.
  h.save(at_step(2), state_at(5, true));
  const auto report = h.index->drop_older_than("job-1", 1, somebody).value();
  CHECK(report.dropped == std::vector{at_step(1)});
  CHECK(report.packs_removed.empty());
  manifest m = manifest_at(at_step(3));
  m.chunks = slow.append_tile(tile_id(0), state_at(3)).value();
  slow.finish().value();
  for (const auto& c : m.chunks)
    for (auto& base : slow.bases_of(c.record)) m.bases.push_back(std::move(base));
  CHECK_FALSE(m.bases.empty());
  CHECK(h.index->commit(m));
  h.saved[at_step(3)] = state_at(3);
  h.index->drop_older_than("job-1", 1, somebody).value();
  CHECK(h.loads(at_step(3)));
}

TEST_CASE("where an older chunk is gone or damaged it is written again") {
  history h;
  h.save(at_step(1), state_at(1));
  const auto old = h.index->get(at_step(1)).value();
  SUBCASE("its pack is gone") {
    std::filesystem::remove(packs_folder(h.root.path()) / old.chunks[0].record.pack);
  }
  SUBCASE("its header is damaged") {
    const auto path = packs_folder(h.root.path()) / old.chunks[0].record.pack;
    std::string bytes = read_file(path);
    for (const auto& c : old.chunks) bytes[c.record.offset + 10] ^= 1;
    write_file(path, bytes);
  }
  h.save(at_step(2), state_at(2));
  CHECK(h.loads(at_step(2)));
  CHECK(h.index->get(at_step(2)).value().bases.empty());
  CHECK_FALSE(h.loads(at_step(1)));
}

TEST_CASE("a base whose bytes are damaged is not built upon, where they are read back") {
  history h({.base_bytes_max = 0});
  h.save(at_step(1), state_at(1));
  const auto hit = h.index->get(at_step(1)).value().chunks[0].record;
  const auto path = packs_folder(h.root.path()) / hit.pack;
  std::string bytes = read_file(path);
  bytes[hit.offset + record_header_bytes + 50] ^= 1;
  write_file(path, bytes);
  h.save(at_step(2), state_at(2));
  CHECK(h.loads(at_step(2)));
}

TEST_CASE("a job that begins from another's checkpoint shares what it does not change") {
  history h;
  h.save(at_step(10), state_at(3));
  const checkpoint_key fork{"fork", {}, step_number(5)};
  h.save(fork, state_at(4), at_step(10));
  CHECK(h.writer.bytes_written() < h.index->get(at_step(10)).value().stored_bytes() / 4);
  CHECK(h.index->get(fork).value().bases.size() == 1);
  // Its origin goes; what the fork needs of it stays.
  h.save(at_step(20), state_at(9));
  h.save(at_step(30), state_at(10));
  h.index->drop_older_than("job-1", 1, nobody).value();
  CHECK_FALSE(h.loads(at_step(10)));
  CHECK(h.loads(fork));
  CHECK(h.loads(at_step(30)));
}

TEST_CASE("a manifest has to name all that its deltas build on, and nothing else") {
  history h;
  for (std::uint32_t step = 1; step <= 3; ++step) h.save(at_step(step), state_at(step));
  const manifest good = h.index->get(at_step(3)).value();
  REQUIRE(good.bases.size() == 2);
  CHECK(decode_manifest(encode(good)).value() == good);
  const auto refused = [&](auto change, const std::string& why) {
    manifest m = good;
    change(m);
    const auto valid = validate(m);
    REQUIRE_FALSE(valid);
    CHECK_MESSAGE(valid.failure().message.find(why) != std::string::npos, valid.failure().message);
  };
  const auto whole = good.bases[0].base ? 1U : 0U;
  refused([&](manifest& m) { m.bases.erase(m.bases.begin() + whole); }, "is missing");
  refused([](manifest& m) { std::swap(m.bases[0], m.bases[1]); }, "not in order");
  refused([](manifest& m) { m.bases.push_back(m.bases[1]); }, "not in order");
  refused([](manifest& m) { m.chunks[0].record.base.reset(); }, "has to name a base");
  refused([](manifest& m) { m.chunks[0].record.codec = chunk_codec::planes; }, "has to name a base");
  refused(
      [&](manifest& m) {
        m.bases[whole].decoded_size = 8;
        m.bases[whole].stored_size = 8;
      },
      "another size");
  refused([&](manifest& m) { m.chunks[0].record = m.bases[whole]; }, "nothing builds on");
  refused(
      [&](manifest& m) {
        m.bases[whole].codec = chunk_codec::delta;
        m.bases[whole].base = m.bases[1 - whole].hash;  // in a circle
      },
      "build on each other");
}
