#include "storage/index/rocks_store.hpp"

#include <rocksdb/cache.h>
#include <rocksdb/table.h>

#include "storage/file.hpp"

namespace perdura::storage {
namespace {

constexpr const char* format_key = "format";
constexpr std::size_t write_buffer_bytes = std::size_t{2} << 20;
constexpr std::size_t block_cache_bytes = std::size_t{2} << 20;
constexpr std::uint64_t log_bytes_max = std::uint64_t{8} << 20;

rocksdb::DBOptions database_options() {
  rocksdb::DBOptions o;
  o.create_if_missing = true;
  o.create_missing_column_families = true;
  o.max_background_jobs = 2;
  o.max_open_files = 64;
  o.max_total_wal_size = log_bytes_max;
  o.max_manifest_file_size = log_bytes_max;
  o.max_log_file_size = std::size_t{1} << 20;
  o.keep_log_file_num = 2;
  o.info_log_level = rocksdb::WARN_LEVEL;
  o.stats_dump_period_sec = 0;
  o.stats_persist_period_sec = 0;
  return o;
}

rocksdb::ColumnFamilyOptions family_options(const std::shared_ptr<rocksdb::Cache>& cache) {
  rocksdb::ColumnFamilyOptions o;
  o.write_buffer_size = write_buffer_bytes;
  o.compression = rocksdb::kNoCompression;
  rocksdb::BlockBasedTableOptions table;
  table.block_cache = cache;
  table.cache_index_and_filter_blocks = true;
  o.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
  return o;
}

}  // namespace

result<std::unique_ptr<rocks_store>> rocks_store::open(const std::filesystem::path& folder,
                                                       const std::vector<std::string>& families,
                                                       std::uint32_t format_version) {
  if (auto made = make_folders(folder); !made) return made.failure();
  std::unique_ptr<rocks_store> store(new rocks_store(folder, families));
  if (auto opened = store->open_database(); !opened) return opened.failure();
  if (auto fits = store->check_format(format_version); !fits) return fits.failure();
  return store;
}

result<void> rocks_store::open_database() {
  const auto cache = rocksdb::NewLRUCache(block_cache_bytes, 0);
  std::vector<rocksdb::ColumnFamilyDescriptor> descriptors{
      {rocksdb::kDefaultColumnFamilyName, family_options(cache)}};
  for (const auto& name : families_) descriptors.emplace_back(name, family_options(cache));
  rocksdb::DB* db = nullptr;
  const auto opened = rocksdb::DB::Open(database_options(), folder_.string(), descriptors, &handles_, &db);
  db_.reset(db);
  if (!opened.ok()) return failure("open", opened);
  return {};
}

void rocks_store::close_database() {
  for (auto* handle : handles_) db_->DestroyColumnFamilyHandle(handle);
  handles_.clear();
  db_.reset();
}

rocks_store::~rocks_store() { close_database(); }

result<void> rocks_store::ready() {
  if (!has_failed_) return {};
  close_database();
  if (auto opened = open_database(); !opened) return opened;
  has_failed_ = false;
  return {};
}

result<void> rocks_store::check_format(std::uint32_t format_version) {
  const auto found = get(0, format_key);
  if (!found) return found.failure();
  const std::string wanted = std::to_string(format_version);
  if (!*found) {
    rocksdb::WriteBatch batch;
    batch.Put(family(0), format_key, wanted);
    return write(batch, true);
  }
  if (**found == wanted) return {};
  return error{errc::version_mismatch, folder_.string() + " has format version " + (*found)->substr(0, 16) +
                                           ", this build uses version " + wanted};
}

result<std::optional<std::string>> rocks_store::get(std::size_t family_number, std::string_view key) const {
  if (!db_) return closed();
  std::string value;
  const auto status = db_->Get({}, family(family_number), key, &value);
  if (status.ok()) return std::optional(std::move(value));
  if (status.IsNotFound()) return std::optional<std::string>();
  return failure("read from", status);
}

result<void> rocks_store::write(rocksdb::WriteBatch& batch, bool sync) {
  if (has_failed_) return closed();
  rocksdb::WriteOptions options;
  options.sync = sync;
  const auto status = db_->Write(options, &batch);
  if (status.ok()) return {};
  has_failed_ = true;
  return failure("write to", status);
}

error rocks_store::closed() const {
  return {errc::io, folder_.string() + " is closed since a write failed, and could not be opened again yet"};
}

std::unique_ptr<rocksdb::Iterator> rocks_store::iterate(std::size_t family_number) const {
  if (!db_)
    return std::unique_ptr<rocksdb::Iterator>(
        rocksdb::NewErrorIterator(rocksdb::Status::IOError(closed().message)));
  return std::unique_ptr<rocksdb::Iterator>(db_->NewIterator({}, family(family_number)));
}

error rocks_store::failure(const std::string& attempt, const rocksdb::Status& status) const {
  const std::string text = status.ToString();
  // RocksDB has no code of its own for a lock that is held.
  if (status.IsIOError() && text.find("LOCK:") != text.npos)
    return {errc::refused, folder_.string() +
                               " is open in another process: only one coordinator may use it; end the other, "
                               "or give this one its own folder (" +
                               text + ")"};
  // A file of its own that is gone is damage like any other.
  const bool is_damaged = status.IsCorruption() || status.IsPathNotFound();
  const errc code = is_damaged                   ? errc::corrupt
                    : status.IsInvalidArgument() ? errc::version_mismatch
                                                 : errc::io;
  return {code, "cannot " + attempt + " " + folder_.string() + ": " + text};
}

void append_number(std::string& key, std::uint64_t n) {
  for (int shift = 56; shift >= 0; shift -= 8) key += static_cast<char>(n >> shift & 0xff);
}

void append_number(std::string& key, std::uint32_t n) {
  for (int shift = 24; shift >= 0; shift -= 8) key += static_cast<char>(n >> shift & 0xff);
}

std::uint64_t number_at_end(std::string_view key) {
  PERDURA_CHECK(key.size() >= 8, "a key that ends with a number");
  std::uint64_t n = 0;
  for (const char c : key.substr(key.size() - 8)) n = n << 8 | static_cast<unsigned char>(c);
  return n;
}

}  // namespace perdura::storage
