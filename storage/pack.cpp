#include "storage/pack.hpp"

#include <fcntl.h>

#include <array>
#include <vector>

#include "storage/codec.hpp"
#include "storage/crc32c.hpp"
#include "storage/pack_frame.hpp"

namespace perdura::storage {

std::uint64_t hash_of_job(std::string_view job) {
  const content_hash hash = hash_of(job);
  std::uint64_t n = 0;
  for (std::size_t i = 0; i < sizeof n; ++i) n = n << 8 | hash.bytes[i];
  return n;
}

pack_writer::pack_writer(std::filesystem::path folder, incarnation who, pack_options options)
    : folder_(std::move(folder)), who_(who), options_(options) {}

result<chunk_record> pack_writer::append(chunk_kind kind, std::span<const std::byte> bytes) {
  return append(kind, chunk_codec::raw, bytes, hash_of(bytes), bytes.size());
}

result<chunk_record> pack_writer::append(chunk_kind kind, chunk_codec codec, std::span<const std::byte> bytes,
                                         const content_hash& hash, std::uint64_t decoded_size) {
  if (decoded_size > chunk_bytes_max || bytes.size() > chunk_bytes_max)
    return error{errc::invalid_argument, "a chunk of " + std::to_string(decoded_size) +
                                             " bytes is larger than " + std::to_string(chunk_bytes_max)};
  std::optional<content_hash> base;
  if (codec == chunk_codec::delta) {
    auto named = base_of(bytes);
    if (!named) return named.failure();
    base = *named;
  }
  if (is_condemned()) return error{errc::io, condemned_};
  const std::uint64_t frame_bytes = record_header_bytes + bytes.size() + record_trailer_bytes;
  if (file_.is_open() && end_ > pack_header_bytes && end_ + frame_bytes > options_.bytes_max) {
    if (auto synced = sync(); !synced) return synced.failure();
    file_.reset();
  }
  if (!file_.is_open())
    if (auto started = start(); !started) return started.failure();

  const chunk_record record{hash, name_, end_, bytes.size(), decoded_size, codec, base};
  const auto header =
      encode_record_header({kind, record.codec, record.stored_size, record.decoded_size, record.hash});
  const auto trailer = encode_checksum(crc32c(bytes));
  const std::array<std::span<const std::byte>, 3> parts{header, bytes, trailer};
  if (auto written = write(parts); !written) return written.failure();
  return record;
}

result<void> pack_writer::start() {
  pack_name name{who_, ++sequence_};
  // The same life may have written for another job before.
  std::error_code unknown;
  while (std::filesystem::exists(folder_ / to_string(name), unknown)) name.sequence = ++sequence_;
  name_ = to_string(name);
  end_ = 0;
  folder_synced_ = false;
  if (auto made = make_folders(folder_); !made) return condemn(made.failure());
  auto file = open_file(folder_ / name_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND);
  if (!file) return condemn(file.failure());
  file_ = std::move(*file);
  const auto header = encode_pack_header({name, purpose_});
  const std::array<std::span<const std::byte>, 1> parts{header};
  return write(parts);
}

result<void> pack_writer::write(std::span<const std::span<const std::byte>> parts) {
  if (auto written = write_all(file_, parts, folder_ / name_); !written) return condemn(written.failure());
  for (const auto& part : parts) end_ += part.size();
  return {};
}

result<void> pack_writer::sync() {
  if (is_condemned()) return error{errc::io, condemned_};
  if (!file_.is_open()) return {};
  if (options_.sync(file_.get()) != 0) return condemn(io_error("make durable", folder_ / name_));
  if (folder_synced_) return {};
  if (auto synced = sync_folder(folder_); !synced) return condemn(synced.failure());
  folder_synced_ = true;
  return {};
}

void pack_writer::begin(const pack_purpose& purpose) {
  file_.reset();
  purpose_ = purpose;
  condemned_.clear();
}

error pack_writer::condemn(const error& cause) {
  condemned_ = "the pack " + name_ + " is condemned: " + cause.message;
  return {errc::io, condemned_};
}

pack_reader::pack_reader(file_descriptor file, std::filesystem::path path, const pack_header& header)
    : file_(std::move(file)), path_(std::move(path)), header_(header) {}

result<pack_reader> pack_reader::open(const std::filesystem::path& folder, const std::string& name) {
  const auto parsed = parse_pack_name(name);
  if (!parsed) return error{errc::invalid_argument, "'" + name + "' is not the name of a pack"};
  const auto path = folder / name;
  auto file = open_file(path, O_RDONLY);
  if (!file) return file.failure();
  header_bytes bytes;
  if (auto read = read_exact(*file, 0, bytes, path); !read) return read.failure();
  auto header = decode_pack_header(bytes);
  if (!header) return error{header.failure().code, path.string() + ": " + header.failure().message};
  if (header->name != *parsed)
    return error{errc::corrupt, path.string() + " was written as " + to_string(header->name)};
  return pack_reader(std::move(*file), path, *header);
}

error pack_reader::corrupt(std::uint64_t offset, const std::string& why) const {
  return {errc::corrupt, path_.string() + " at offset " + std::to_string(offset) + ": " + why};
}

result<record_header> pack_reader::read_header(std::uint64_t offset, std::uint64_t file_bytes) const {
  constexpr std::uint64_t frame_bytes_min = record_header_bytes + record_trailer_bytes;
  if (offset < pack_header_bytes || offset > file_bytes || file_bytes - offset < frame_bytes_min)
    return corrupt(offset,
                   "the file of " + std::to_string(file_bytes) + " bytes has no room for a record here");
  header_bytes bytes;
  if (auto read = read_exact(file_, offset, bytes, path_); !read) return read.failure();
  auto header = decode_record_header(bytes);
  if (!header) return corrupt(offset, header.failure().message);
  if (header->stored_size > file_bytes - offset - frame_bytes_min)
    return corrupt(offset,
                   "the record of " + std::to_string(header->stored_size) + " bytes runs past the end");
  return header;
}

result<void> pack_reader::check(const chunk_record& record) const {
  auto file_bytes = size_of(file_, path_);
  if (!file_bytes) return file_bytes.failure();
  auto header = read_header(record.offset, *file_bytes);
  if (!header) return header.failure();
  if (header->hash != record.hash || header->stored_size != record.stored_size ||
      header->decoded_size != record.decoded_size || header->codec != record.codec)
    return corrupt(record.offset, "another chunk lies here: " + to_string(header->hash) + " (" +
                                      to_string(header->codec) + "), wanted " + to_string(record.hash) +
                                      " (" + to_string(record.codec) + ")");
  return {};
}

result<void> pack_reader::read_payload(const chunk_record& record, std::span<std::byte> out) const {
  const std::uint64_t payload_at = record.offset + record_header_bytes;
  if (auto read = read_exact(file_, payload_at, out, path_); !read) return read;
  std::array<std::byte, record_trailer_bytes> trailer;
  if (auto read = read_exact(file_, payload_at + out.size(), trailer, path_); !read) return read;
  if (decode_checksum(trailer) != crc32c(out))
    return corrupt(record.offset, "the checksum of the chunk's bytes does not fit");
  return {};
}

result<void> pack_reader::read(const chunk_record& record, std::span<std::byte> out,
                               std::span<const std::byte> base) const {
  if (record.decoded_size != out.size())
    return error{errc::invalid_argument, path_.string() + " at offset " + std::to_string(record.offset) +
                                             ": the chunk has " + std::to_string(record.decoded_size) +
                                             " bytes, asked for were " + std::to_string(out.size())};
  if (auto checked = check(record); !checked) return checked;
  if (record.codec == chunk_codec::raw) {
    if (auto read = read_payload(record, out); !read) return read;
  } else {
    std::vector<std::byte> stored(record.stored_size);  // no more than the file has: see check()
    if (auto read = read_payload(record, stored); !read) return read;
    if (record.codec == chunk_codec::delta) {
      const auto named = base_of(stored);
      if (!named || *named != record.base)
        return corrupt(record.offset, "the delta is to another base than its manifest says");
    }
    if (auto decoded = decode_chunk(record.codec, stored, base, out); !decoded)
      return corrupt(record.offset, decoded.failure().message);
  }
  if (hash_of(out) != record.hash)
    return corrupt(record.offset, "the hash of the chunk's bytes does not fit");
  return {};
}

pack_scan pack_reader::scan(const std::function<void(chunk_kind, const chunk_record&)>& visit) const {
  pack_scan found;
  const auto file_bytes = size_of(file_, path_);
  if (!file_bytes) {
    found.why = file_bytes.failure().message;
    return found;
  }
  found.file_bytes = *file_bytes;
  found.valid_bytes = pack_header_bytes;
  std::vector<std::byte> payload;
  while (found.valid_bytes < found.file_bytes) {
    const std::uint64_t offset = found.valid_bytes;
    auto header = read_header(offset, found.file_bytes);
    if (!header) {
      found.why = header.failure().message;
      break;
    }
    payload.resize(header->stored_size);
    std::array<std::byte, record_trailer_bytes> trailer;
    auto read = read_exact(file_, offset + record_header_bytes, payload, path_);
    if (read) read = read_exact(file_, offset + record_header_bytes + payload.size(), trailer, path_);
    if (read && decode_checksum(trailer) != crc32c(payload))
      read = corrupt(offset, "the checksum of the chunk's bytes does not fit");
    if (!read) {
      found.why = read.failure().message;
      break;
    }
    chunk_record record{header->hash,         to_string(header_.name), offset,      header->stored_size,
                        header->decoded_size, header->codec,           std::nullopt};
    if (header->codec == chunk_codec::delta) {
      const auto base = base_of(payload);
      if (!base) {
        found.why = corrupt(offset, base.failure().message).message;
        break;
      }
      record.base = *base;
    }
    visit(header->kind, record);
    ++found.records;
    found.valid_bytes = offset + record_header_bytes + payload.size() + record_trailer_bytes;
  }
  return found;
}

}  // namespace perdura::storage
