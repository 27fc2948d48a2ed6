#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <limits>
#include <map>
#include <set>
#include <thread>

#include "storage/checkpoint_reader.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/crc32c.hpp"
#include "storage/manifest.hpp"
#include "storage/object_folder.hpp"
#include "storage/pack.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::storage;

namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

struct packed {
  std::vector<std::vector<std::byte>> contents;
  std::vector<chunk_record> records;
};

packed small_pack(const std::filesystem::path& folder) {
  packed p;
  pack_writer writer(folder, writer_a);
  writer.begin(purpose_of(at_step(5)));
  for (const std::size_t size : {40, 0, 7}) {
    p.contents.push_back(some_bytes(size, static_cast<std::uint32_t>(size)));
    p.records.push_back(writer.append(chunk_kind::ema, p.contents.back()).value());
  }
  writer.sync().value();
  return p;
}

// How many records come back; each that does must be right.
std::size_t readable_records(const std::filesystem::path& folder, const packed& p) {
  const auto reader = pack_reader::open(folder, p.records[0].pack);
  if (!reader) return 0;
  std::size_t readable = 0;
  for (std::size_t i = 0; i < p.records.size(); ++i) {
    std::vector<std::byte> out(p.contents[i].size());
    if (!reader->read(p.records[i], out)) continue;
    CHECK(out == p.contents[i]);
    ++readable;
  }
  return readable;
}

std::string resigned(const std::string& body) { return body + "\nsha256 " + to_string(hash_of(body)) + "\n"; }
std::string body_of(const std::string& text) { return text.substr(0, text.size() - 73); }

manifest full_manifest() {
  manifest m = empty_manifest(at_step(600));
  for (std::uint32_t t = 0; t < m.tiles.size(); ++t)
    for (const auto& array : m.arrays) {
      const std::uint64_t size = std::uint64_t{m.tiles[t].size} * 4;
      m.chunks.push_back({tile_id(t),
                          array.kind,
                          {hash_of(std::to_string(m.chunks.size())), to_string(pack_name{writer_a, t + 1}),
                           64 + 1000 * m.chunks.size(), size, size, chunk_codec::raw}});
    }
  m.tensors = {{"blocks.0.weight", {4, 4}, 0}};
  return m;
}

}  // namespace

TEST_CASE("hashes are SHA-256 and survive being written as text") {
  const auto hash = hash_of(std::string_view("abc"));
  CHECK(to_string(hash) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(parse_hash(to_string(hash)) == hash);
  CHECK_FALSE(parse_hash("ba78"));
  CHECK_FALSE(parse_hash(std::string(64, 'G')));
}

TEST_CASE("checksums are CRC-32C, by instruction and by table") {
  CHECK(crc32c(std::as_bytes(std::span("123456789", 9))) == 0xe3069283U);
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 1000}) {
    const auto bytes = some_bytes(size, 3);
    CHECK(crc32c(bytes) == crc32c_by_table(bytes));
  }
}

TEST_CASE("only the one spelling of a pack's name is accepted") {
  const pack_name name{writer_a, 7};
  CHECK(parse_pack_name(to_string(name)) == name);
  for (const char* bad :
       {"", "x.pack", "../../etc/passwd", "00000000000011110000000000000aaaa-7.pack",
        "0000000000001111000000000000aaaa-7.pack", "0000000000001111000000000000aaaa-+00007.pack",
        "0000000000001111000000000000aaaa-000007.pack/", "0000000000001111000000000000AAAA-000007.pack"})
    CHECK_FALSE(parse_pack_name(bad));
}

TEST_CASE("an object's name tells its checkpoint") {
  const auto key = at_step(600, 2);
  CHECK(parse_checkpoint_object(manifest_object(key)) == key);
  CHECK(parse_checkpoint_object(tombstone_object(key)) == key);
  for (const char* bad : {"manifests/job-1/2-600.json", "manifests/.x/000002-000000000600.json",
                          "manifests/job-1/x.json", "other/job-1/000002-000000000600.json", "terms/000001"})
    CHECK_FALSE(parse_checkpoint_object(bad));
}

TEST_CASE("a pack gives back what was appended, and a scan finds it all") {
  temporary_folder folder;
  const packed p = small_pack(folder.path());
  CHECK(readable_records(folder.path(), p) == 3);
  const auto reader = pack_reader::open(folder.path(), p.records[0].pack).value();
  CHECK(reader.header().purpose == purpose_of(at_step(5)));
  std::vector<chunk_record> found;
  const auto scan = reader.scan([&](chunk_kind kind, const chunk_record& r) {
    CHECK(kind == chunk_kind::ema);
    found.push_back(r);
  });
  CHECK(scan.is_complete());
  CHECK(scan.valid_bytes == scan.file_bytes);
  CHECK(found == p.records);
}

TEST_CASE("a pack with any one bit flipped gives an error, never other bytes") {
  temporary_folder folder;
  const packed p = small_pack(folder.path());
  const auto path = folder.path() / p.records[0].pack;
  const std::string whole = read_file(path);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    write_file(path, damaged);
    CAPTURE(i);
    CHECK(readable_records(folder.path(), p) == (i < pack_header_bytes ? 0 : 2));
    const auto reader = pack_reader::open(folder.path(), p.records[0].pack);
    if (reader) CHECK_FALSE(reader->scan([](chunk_kind, const chunk_record&) {}).is_complete());
  }
}

TEST_CASE("a torn pack keeps its whole records, and the scan says where it ends") {
  temporary_folder folder;
  const packed p = small_pack(folder.path());
  const auto path = folder.path() / p.records[0].pack;
  const std::string whole = read_file(path);
  const auto end_of = [&](std::size_t i) { return p.records[i].offset + 68 + p.records[i].stored_size; };
  for (std::size_t size = 0; size < whole.size(); ++size) {
    write_file(path, whole.substr(0, size));
    CAPTURE(size);
    std::size_t kept = 0;
    while (kept < 3 && end_of(kept) <= size) ++kept;
    CHECK(readable_records(folder.path(), p) == kept);
    const auto reader = pack_reader::open(folder.path(), p.records[0].pack);
    CHECK(reader.has_value() == (size >= pack_header_bytes));
    if (!reader) continue;
    const auto scan = reader->scan([](chunk_kind, const chunk_record&) {});
    CHECK(scan.records == kept);
    CHECK(scan.valid_bytes == (kept == 0 ? pack_header_bytes : end_of(kept - 1)));
    CHECK(scan.is_complete() == (scan.valid_bytes == size));
    CHECK(contains(scan.why, scan.is_complete() ? "" : "at offset " + std::to_string(scan.valid_bytes)));
  }
}

TEST_CASE("a record that lies about where or what a chunk is is refused before anything is read") {
  temporary_folder folder;
  const packed p = small_pack(folder.path());
  const auto reader = pack_reader::open(folder.path(), p.records[0].pack).value();
  std::vector<std::byte> out(40);
  auto wrong = p.records[0];
  wrong.offset = std::numeric_limits<std::uint64_t>::max();
  CHECK(reader.read(wrong, out).failure().code == errc::corrupt);
  wrong = p.records[0];
  wrong.hash = p.records[2].hash;
  CHECK(contains(reader.read(wrong, out).failure().message, "another chunk lies here"));
  CHECK(reader.read(p.records[2], out).failure().code == errc::invalid_argument);
  CHECK(pack_reader::open(folder.path(), "../x").failure().code == errc::invalid_argument);
  CHECK(pack_reader::open(folder.path(), to_string(pack_name{writer_b, 1})).failure().code ==
        errc::not_found);
}

TEST_CASE("a pack of a newer format is refused by its version") {
  temporary_folder folder;
  const packed p = small_pack(folder.path());
  const auto path = folder.path() / p.records[0].pack;
  std::string bytes = read_file(path);
  bytes[8] = 99;
  const std::uint32_t crc = crc32c(std::as_bytes(std::span(bytes)).first(60));
  for (std::size_t i = 0; i < 4; ++i) bytes[60 + i] = static_cast<char>(crc >> 8 * i);
  write_file(path, bytes);
  const auto reader = pack_reader::open(folder.path(), p.records[0].pack);
  CHECK(reader.failure().code == errc::version_mismatch);
}

TEST_CASE("a pack ends at its limit and the next one begins") {
  temporary_folder folder;
  pack_writer writer(folder.path(), writer_a, {.bytes_max = 300});
  std::map<std::string, int> records;
  for (int i = 0; i < 5; ++i) ++records[writer.append(chunk_kind::ema, some_bytes(40, 1)).value().pack];
  CHECK(writer.append(chunk_kind::ema, some_bytes(1000, 1)).value().offset == pack_header_bytes);
  CHECK(records == std::map<std::string, int>{{to_string(pack_name{writer_a, 1}), 2},
                                              {to_string(pack_name{writer_a, 2}), 2},
                                              {to_string(pack_name{writer_a, 3}), 1}});
}

TEST_CASE("a failed fsync condemns the pack: nothing succeeds any more until another is begun") {
  static bool is_broken = false;
  const auto sync = [](int fd) { return is_broken ? (errno = EIO, -1) : ::fsync(fd); };
  temporary_folder folder;
  pack_writer writer(folder.path(), writer_a, {.sync = sync});
  const auto first = writer.append(chunk_kind::ema, some_bytes(10, 1)).value();
  is_broken = true;
  CHECK(contains(writer.sync().failure().message, "condemned"));
  is_broken = false;
  CHECK_FALSE(writer.sync());
  CHECK_FALSE(writer.append(chunk_kind::ema, some_bytes(10, 1)));
  CHECK(writer.is_condemned());
  writer.begin(purpose_of(at_step(1)));
  CHECK(writer.append(chunk_kind::ema, some_bytes(10, 1)).value().pack != first.pack);
  CHECK(writer.sync());
}

TEST_CASE("a full disk fails the snapshot as a whole, and the next one is sound") {
  temporary_folder folder;
  checkpoint_writer writer(folder.path(), writer_a);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 5000;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  writer.begin(at_step(1));
  CHECK(writer.append(tile_id(0), chunk_kind::ema, some_bytes(1000, 1)));
  const auto failed = writer.append(tile_id(1), chunk_kind::ema, some_bytes(8000, 2));
  const auto later = writer.append(tile_id(2), chunk_kind::ema, some_bytes(10, 3));
  const auto finished = writer.finish();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);

  REQUIRE_FALSE(failed);
  CHECK(contains(failed.failure().message, "tile 1 ema"));
  CHECK(contains(failed.failure().message, "File too large"));
  CHECK_FALSE(later);
  CHECK_FALSE(finished);
  writer.begin(at_step(2));
  const auto chunk = writer.append(tile_id(1), chunk_kind::ema, some_bytes(8000, 2)).value();
  CHECK(writer.finish());
  std::vector<std::byte> out(8000);
  CHECK(pack_reader::open(packs_folder(folder.path()), chunk.record.pack).value().read(chunk.record, out));
}

TEST_CASE("a life that writes for a second job begins with packs of its own") {
  const temporary_folder folder;
  const auto bytes = some_bytes(16, 1);
  for (const char* job : {"first", "second"}) {
    checkpoint_writer writer(folder.path(), writer_a);
    writer.begin({job, timeline_number(1), step_number(10)});
    REQUIRE(writer.append(tile_id(0), all_kinds.front(), bytes));
    CHECK(writer.finish());
  }
}

TEST_CASE("a chunk's report says all that the manifest needs") {
  temporary_folder folder;
  checkpoint_writer writer(folder.path(), writer_a);
  writer.begin(at_step(9));
  const auto chunk = writer.append(tile_id(4), chunk_kind::second_moment, some_bytes(100, 1)).value();
  // A delta, as a later one would be, and what it builds on.
  chunk_record delta = chunk.record;
  delta.codec = chunk_codec::delta;
  delta.hash = hash_of(std::string_view("later"));
  delta.base = chunk.record.hash;
  const auto report_of = [&](const chunk_record& r, std::vector<chunk_record> bases) {
    return to_report({chunk.tile, chunk.kind, r}, bases, writer_a, timeline_number(1), {term_number(2), 3},
                     step_number(9));
  };
  CHECK(from_report(report_of(chunk.record, {})).value().chunk == chunk);
  const auto both = from_report(report_of(delta, {chunk.record})).value();
  CHECK(both.chunk.record == delta);
  CHECK(both.bases == std::vector{chunk.record});

  CHECK_FALSE(from_report(report_of(delta, {})));
  CHECK_FALSE(from_report(report_of(chunk.record, {chunk.record})));
  auto report = report_of(chunk.record, {});
  report.chunk.pack = "../../secret";
  CHECK_FALSE(from_report(report));
  report = report_of(chunk.record, {});
  report.kind = 9;
  CHECK_FALSE(from_report(report));
  report = report_of(chunk.record, {});
  report.chunk.codec = 77;
  CHECK_FALSE(from_report(report));
  report = report_of(chunk.record, {});
  report.chunk.stored_size = std::numeric_limits<std::uint64_t>::max();
  CHECK_FALSE(from_report(report));
  report = report_of(delta, std::vector<chunk_record>(chain_length_max + 1, delta));
  CHECK_FALSE(from_report(report));
}

TEST_CASE("a manifest survives its text, a NaN loss included") {
  manifest m = full_manifest();
  m.standing.outcome.loss = std::numeric_limits<double>::signaling_NaN();
  m.standing.outcome.clip_scale = -0.0F;
  const auto again = decode_manifest(encode(m));
  REQUIRE(again);
  CHECK(*again == m);
  CHECK(encode(*again) == encode(m));
  CHECK(again->total_bytes() == 16 * 4 * 4);
  CHECK(again->find(tile_id(1), chunk_kind::ema)->record == m.chunks[7].record);
  CHECK(again->find(tile_id(2), chunk_kind::ema) == nullptr);
}

TEST_CASE("a manifest with any one bit flipped or any bytes missing is refused") {
  const std::string text = encode(full_manifest());
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    CHECK(decode_manifest(damaged).failure().code == errc::corrupt);
    CHECK_FALSE(decode_manifest(text.substr(0, i)));
    CHECK_FALSE(decode_manifest(text.substr(i + 1)));
  }
  CHECK_FALSE(decode_manifest(text + "\n"));
}

TEST_CASE("a hostile manifest with a fitting hash is refused, or is a valid manifest") {
  const std::string body = body_of(encode(full_manifest()));
  REQUIRE(decode_manifest(resigned(body)));
  const std::string_view letters = "0123456789,[]{}\"-.eEtrufalsn\\ \x01\xff";
  std::size_t accepted = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    std::string other = body;
    other[i] = letters[(i * 7 + i / 13) % letters.size()];
    if (const auto m = decode_manifest(resigned(other))) {
      CHECK(validate(*m));
      CHECK(body_of(encode(*m)) == other);
      ++accepted;
    }
    CHECK_FALSE(decode_manifest(resigned(body.substr(0, i))));
    other = body;
    other.erase(i, 1 + i % 5);
    if (const auto m = decode_manifest(resigned(other))) CHECK(body_of(encode(*m)) == other);
    other = body;
    other.insert(i, 1, letters[i % letters.size()]);
    if (const auto m = decode_manifest(resigned(other))) CHECK(body_of(encode(*m)) == other);
  }
  CHECK(accepted > 0);
  CHECK(accepted < body.size());
  CHECK_FALSE(decode_manifest(resigned(std::string(100000, '['))));
  CHECK_FALSE(decode_manifest(resigned("{\"format\":\"perdura-manifest\",\"version\":2}")));
  CHECK_FALSE(decode_manifest(resigned(" " + body)));
}

TEST_CASE("a manifest of a newer format is refused by its version") {
  std::string body = body_of(encode(full_manifest()));
  const std::string version = "\"version\":" + std::to_string(manifest_format_version);
  body.replace(body.find(version), version.size(), "\"version\":99,\"novelty\":[]");
  const auto refused = decode_manifest(resigned(body));
  CHECK(refused.failure().code == errc::version_mismatch);
}

TEST_CASE("a manifest that does not cover each tile and array exactly once is refused") {
  const manifest good = full_manifest();
  REQUIRE(validate(good));
  const auto refused = [&](auto change, const std::string& why) {
    manifest m = good;
    change(m);
    const auto valid = validate(m);
    REQUIRE_FALSE(valid);
    CHECK_MESSAGE(contains(valid.failure().message, why), valid.failure().message);
  };
  refused([](manifest& m) { m.chunks.pop_back(); }, "tile 1 ema is missing");
  refused([](manifest& m) { m.chunks.erase(m.chunks.begin() + 2); }, "expected tile 0 second_moment");
  refused([](manifest& m) { m.chunks.insert(m.chunks.begin(), m.chunks[0]); }, "there twice");
  refused([](manifest& m) { m.chunks.push_back(m.chunks[7]); }, "there twice");
  refused([](manifest& m) { m.chunks[3].record.decoded_size -= 4; }, "expected 40");
  refused([](manifest& m) { m.chunks[3].record.stored_size = 3; }, "two sizes differ");
  refused([](manifest& m) { m.chunks[3].record.pack = "../x"; }, "no name of a pack");
  refused([](manifest& m) { m.tiles[1].first = 9; }, "expected to begin at 10");
  refused([](manifest& m) { m.tiles.clear(); }, "0 tiles");
  refused([](manifest& m) { std::swap(m.arrays[0], m.arrays[1]); }, "not in order");
  refused([](manifest& m) { m.tensors[0].shape = {1ULL << 40, 1ULL << 40}; }, "does not fit");
  refused([](manifest& m) { m.job = "a/b"; }, "not a job's name");
}

TEST_CASE("what one store writes is loaded tile by tile, by manifest and packs alone") {
  temporary_folder folder;
  const manifest m = written_checkpoint(folder.path(), at_step(100));
  REQUIRE(object_folder(folder.path()).put_if_absent(manifest_object(m.key()), encode(m)));
  auto reader = checkpoint_reader::open(folder.path(), m.key()).value();
  CHECK(reader.contents() == m);
  for (std::uint32_t t = 0; t < 2; ++t) CHECK(reader.load_tile(tile_id(t)).value() == tile_state(m, t));
  std::vector<std::byte> moments(40);
  CHECK(reader.load(tile_id(0), chunk_kind::second_moment, moments));
  CHECK(std::equal(moments.begin(), moments.end(), tile_state(m, 0).begin() + 80));
  CHECK(reader.verify().empty());
  CHECK_FALSE(reader.load_tile(tile_id(2)));
  CHECK(checkpoint_reader::open(folder.path(), at_step(101)).failure().code == errc::not_found);
}

TEST_CASE("a load that fails says which tile, file and offset") {
  temporary_folder folder;
  const manifest m = written_checkpoint(folder.path(), at_step(100));
  REQUIRE(object_folder(folder.path()).put_if_absent(manifest_object(m.key()), encode(m)));
  const chunk_record& hit = m.chunks[2].record;
  const auto path = packs_folder(folder.path()) / hit.pack;
  std::string bytes = read_file(path);
  bytes[hit.offset + record_header_bytes + 3] ^= 4;
  write_file(path, bytes);
  auto reader = checkpoint_reader::open(folder.path(), m.key()).value();
  CHECK(reader.check_headers());
  const auto failures = reader.verify();
  REQUIRE(failures.size() == 1);
  for (const auto& part :
       {std::string("tile 0 second_moment"), hit.pack, "offset " + std::to_string(hit.offset)})
    CHECK(contains(failures[0], part));
  std::filesystem::remove(path);
  auto again = checkpoint_reader::open(folder.path(), m.key()).value();
  CHECK(contains(again.check_headers().failure().message, "No such file"));
}

TEST_CASE("a manifest under another checkpoint's name is refused") {
  temporary_folder folder;
  const manifest m = written_checkpoint(folder.path(), at_step(100));
  const object_folder objects(folder.path());
  REQUIRE(objects.put_if_absent(manifest_object(at_step(200)), encode(m)));
  CHECK(checkpoint_reader::open(folder.path(), at_step(200)).failure().code == errc::corrupt);
}

TEST_CASE("checkpoints are listed newest first, later timelines before earlier, condemned ones not at all") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  CHECK(list_checkpoints(objects, "").value().empty());
  for (const auto& key :
       {at_step(100), at_step(300), at_step(200, 1), checkpoint_key{"a", {}, step_number(5)}})
    REQUIRE(objects.put_if_absent(manifest_object(key), "x"));
  REQUIRE(objects.put_if_absent("manifests/job-1/notes.txt", "x"));
  REQUIRE(objects.put_if_absent(tombstone_object(at_step(100)), ""));
  CHECK(list_checkpoints(objects, "job-1").value() == std::vector{at_step(200, 1), at_step(300)});
  CHECK(list_checkpoints(objects, "").value().size() == 3);
  CHECK_FALSE(list_checkpoints(objects, "../x"));
}

TEST_CASE("an object is put once, read, listed and removed") {
  temporary_folder folder;
  const object_folder objects(folder.path() / "deep" / "er");
  CHECK(objects.get("a/b").failure().code == errc::not_found);
  CHECK(objects.put_if_absent("a/b", "one"));
  CHECK(objects.put_if_absent("a/b", "two").failure().code == errc::already_exists);
  CHECK(objects.get("a/b").value() == "one");
  CHECK(objects.exists("a/b").value());
  CHECK(objects.put_if_absent("a/c/d", std::string("\0x", 2)));
  CHECK(objects.list("a").value() == std::vector<std::string>{"a/b", "a/c/d"});
  CHECK(objects.list("nothing").value().empty());
  CHECK(objects.remove("a/b"));
  CHECK(objects.remove("a/b"));
  CHECK(objects.remove("none/such"));
  CHECK_FALSE(objects.exists("a/b").value());
  CHECK(std::filesystem::is_empty(objects.root() / ".writing"));
}

TEST_CASE("names that could leave the folder or hide in it are refused") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  for (const std::string& bad :
       {std::string(), std::string("/x"), std::string("../x"), std::string("a/../b"), std::string("a//b"),
        std::string("a/"), std::string(".writing/x"), std::string("a/b/c/d"), std::string("a b"),
        std::string("a\0b", 3), std::string(101, 'x')}) {
    CHECK(objects.put_if_absent(bad, "x").failure().code == errc::invalid_argument);
    CHECK_FALSE(objects.get(bad));
    CHECK_FALSE(objects.remove(bad));
  }
}

TEST_CASE("what a dying writer leaves behind is no object and goes away") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  REQUIRE(objects.put_if_absent("a", "x"));
  write_file(folder.path() / ".writing" / "123-0", "half");
  CHECK(objects.remove_leftovers(std::chrono::hours(1)));
  CHECK_FALSE(std::filesystem::is_empty(folder.path() / ".writing"));
  CHECK(objects.remove_leftovers(std::chrono::seconds(0)));
  CHECK(std::filesystem::is_empty(folder.path() / ".writing"));
}

TEST_CASE("of many threads that put one object exactly one succeeds") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  for (int round = 0; round < 20; ++round) {
    const std::string name = "object-" + std::to_string(round);
    std::vector<int> won(8);
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&, i] { won[i] = objects.put_if_absent(name, std::to_string(i)).has_value(); });
    for (auto& t : threads) t.join();
    REQUIRE(std::count(won.begin(), won.end(), 1) == 1);
    CHECK(won[std::stoi(objects.get(name).value())] == 1);
  }
}

TEST_CASE("terms count up, also across gaps") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  CHECK(claim_term(objects, "first").value() == term_number(1));
  CHECK(claim_term(objects, "second").value() == term_number(2));
  CHECK(objects.get("terms/000002").value() == "second");
  REQUIRE(objects.put_if_absent("terms/000041", "other"));
  REQUIRE(objects.remove("terms/000001"));
  CHECK(claim_term(objects, "third").value() == term_number(42));
}

TEST_CASE("threads that claim a term at once each get another one") {
  temporary_folder folder;
  const object_folder objects(folder.path());
  std::vector<std::uint32_t> terms(16);
  std::vector<std::thread> threads;
  for (auto& term : terms) threads.emplace_back([&] { term = claim_term(objects, "thread").value().value; });
  for (auto& t : threads) t.join();
  CHECK(std::set(terms.begin(), terms.end()).size() == terms.size());
  CHECK(*std::max_element(terms.begin(), terms.end()) == terms.size());
}

TEST_CASE("processes that claim a term at once each get another one") {
  temporary_folder folder;
  constexpr int processes = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const auto term = claim_term(object_folder(folder.path()), "process");
      ::_exit(term ? static_cast<int>(term->value) : 0);
    }
    children.push_back(child);
  }
  std::set<int> terms;
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    terms.insert(WEXITSTATUS(status));
  }
  CHECK(terms.size() == processes);
  CHECK(*terms.begin() == 1);
  CHECK(*terms.rbegin() == processes);
}
