#include <cstring>

#include "storage/crc32c.hpp"
#include "storage/pack.hpp"
#include "storage/pack_frame.hpp"
#include "tests/fuzz/scratch.hpp"

namespace perdura::fuzz {
namespace {

using namespace storage;

constexpr std::uint64_t read_bytes_max = std::uint64_t{1} << 20;
const pack_name name{writer_a, 1};

void put_checksum(std::span<std::uint8_t> bytes, std::size_t covered, std::size_t at) {
  const auto crc = encode_checksum(crc32c(std::as_bytes(bytes.subspan(at - covered, covered))));
  std::memcpy(bytes.data() + at, crc.data(), crc.size());
}

// All checksums right, and the file's name in its header: what is left to find wrong is what they cover.
void seal(std::span<std::uint8_t> file) {
  if (file.size() < pack_header_bytes) return;
  const auto named = encode_pack_header({name, {}});
  std::memcpy(file.data() + 16, named.data() + 16, 20);
  put_checksum(file, 60, 60);
  for (std::size_t at = pack_header_bytes; file.size() - at >= record_header_bytes + record_trailer_bytes;) {
    put_checksum(file, 60, at + 60);
    std::uint64_t stored = 0;
    std::memcpy(&stored, file.data() + at + 8, sizeof stored);
    const auto room = file.size() - at - record_header_bytes - record_trailer_bytes;
    if (stored > room) return;
    const auto size = static_cast<std::size_t>(stored);
    put_checksum(file, size, at + record_header_bytes + size);
    at += record_header_bytes + size + record_trailer_bytes;
  }
}

struct found {
  chunk_kind kind;
  chunk_record record;
};

}  // namespace

bool run_pack(input bytes) {
  if (bytes.empty()) return false;
  input_bytes file(bytes.begin() + 1, bytes.end());
  if (bytes[0] % 2 != 0) seal(file);
  write_file(scratch() / to_string(name), text_of(file));
  const auto pack = pack_reader::open(scratch(), to_string(name));
  if (!pack) return false;
  PERDURA_CHECK(pack->header().name == name, "a pack is what its name says");
  std::vector<found> records;
  const auto scan = pack->scan([&](chunk_kind kind, const chunk_record& record) {
    records.push_back({kind, record});
  });
  PERDURA_CHECK(scan.valid_bytes <= scan.file_bytes && scan.file_bytes == file.size(),
                "a scan stays in the file");
  PERDURA_CHECK(scan.records == records.size(), "each record is visited once");
  for (const auto& [kind, record] : records) {
    PERDURA_CHECK(pack->check(record).has_value(), "a record that was scanned is found");
    if (record.decoded_size > read_bytes_max) continue;
    std::vector<std::byte> out(record.decoded_size);
    // Of a delta any bytes of the right size may be the base: what comes out is refused, or is what it should
    // be.
    const auto base = some_bytes(record.decoded_size, 1);
    if (pack->read(record, out,
                   record.codec == chunk_codec::delta ? std::span(base) : std::span<const std::byte>{}))
      PERDURA_CHECK(hash_of(out) == record.hash, "what is read is what the record names");
  }
  return !records.empty();
}

std::vector<input_bytes> pack_seeds() {
  const auto folder = scratch() / "seeds";
  std::filesystem::remove_all(folder);
  pack_writer writer(folder, writer_a, {.sync = [](int) { return 0; }});
  writer.begin(purpose_of(at_step(7)));
  for (std::uint32_t i = 0; i < 4; ++i) {
    const auto bytes = some_bytes(i * 32, i);
    writer.append(all_kinds[i], chunk_codec::raw, bytes, hash_of(bytes), bytes.size()).value();
  }
  writer.sync().value();
  const auto file = read_file(folder / to_string(name));
  return {bytes_of(0, file), bytes_of(1, file)};
}

}  // namespace perdura::fuzz
