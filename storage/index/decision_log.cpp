#include "storage/index/decision_log.hpp"

#include <algorithm>

#include "storage/index/rocks_store.hpp"

namespace perdura::storage {
namespace {

enum family : std::size_t { states_family = 1, events_family = 2 };

std::string event_key(std::uint64_t sequence) {
  std::string key;
  append_number(key, sequence);
  return key;
}

result<void> check_size(std::string_view what, std::string_view bytes) {
  if (bytes.size() <= log_entry_bytes_max) return {};
  return error{errc::exhausted, std::string(what) + " of " + std::to_string(bytes.size()) +
                                    " bytes is larger than " + std::to_string(log_entry_bytes_max)};
}

}  // namespace

decision_log::decision_log(std::unique_ptr<rocks_store> store, decision_log_options options)
    : store_(std::move(store)), options_(options) {}
decision_log::~decision_log() = default;

result<std::unique_ptr<decision_log>> decision_log::open(const std::filesystem::path& folder,
                                                         decision_log_options options) {
  if (options.events_max == 0)
    return error{errc::invalid_argument, "events_max is 0; at least 1 event is kept"};
  auto store = rocks_store::open(folder, {"states", "events"}, decision_log_format_version);
  if (!store) return store.failure();
  std::unique_ptr<decision_log> log(new decision_log(*std::move(store), options));
  if (auto found = log->find_ends(); !found) return found.failure();
  return log;
}

result<void> decision_log::find_ends() {
  const auto at = store_->iterate(events_family);
  at->SeekToLast();
  if (at->Valid()) next_ = number_at_end(at->key().ToStringView()) + 1;
  at->SeekToFirst();
  if (at->Valid()) first_ = number_at_end(at->key().ToStringView());
  if (!at->status().ok()) return store_->failure("read from", at->status());
  return {};
}

result<void> decision_log::put_state(std::string_view key, std::string_view bytes, bool sync) {
  log_entry entry;
  entry.states.emplace_back(key, bytes);
  if (auto written = write(entry, sync); !written) return written.failure();
  return {};
}

result<std::optional<std::string>> decision_log::get_state(std::string_view key) const {
  return store_->get(states_family, key);
}

result<std::vector<std::pair<std::string, std::string>>> decision_log::list_states(
    std::string_view prefix) const {
  std::vector<std::pair<std::string, std::string>> states;
  const auto at = store_->iterate(states_family);
  for (at->Seek(prefix); at->Valid() && at->key().starts_with(prefix); at->Next())
    states.emplace_back(at->key().ToString(), at->value().ToString());
  if (!at->status().ok()) return store_->failure("read from", at->status());
  return states;
}

result<std::uint64_t> decision_log::append_event(std::string_view bytes) {
  log_entry entry;
  entry.events.emplace_back(bytes);
  return write(entry, false);
}

result<std::uint64_t> decision_log::write(const log_entry& entry, bool sync) {
  if (auto ready = store_->ready(); !ready) return ready.failure();
  rocksdb::WriteBatch batch;
  for (const auto& [key, bytes] : entry.states) {
    if (auto fits = check_size("the state " + key.substr(0, 64), bytes); !fits) return fits.failure();
    batch.Put(store_->family(states_family), key, bytes);
  }
  for (const auto& key : entry.erased) batch.Delete(store_->family(states_family), key);
  std::uint64_t next = next_;
  for (const auto& bytes : entry.events) {
    if (auto fits = check_size("an event", bytes); !fits) return fits.failure();
    batch.Put(store_->family(events_family), event_key(next++), bytes);
  }
  std::uint64_t first = first_;
  for (; next - first > options_.events_max; ++first)
    batch.Delete(store_->family(events_family), event_key(first));
  if (auto written = store_->write(batch, sync); !written) return written.failure();
  first_ = first;
  next_ = next;
  return last_sequence();
}

result<std::vector<logged_event>> decision_log::read_events(std::uint64_t from, std::size_t count) const {
  std::vector<logged_event> events;
  const auto at = store_->iterate(events_family);
  // Not from the beginning: it is full of what was dropped and not yet compacted.
  for (at->Seek(event_key(std::max(from, first_))); at->Valid() && events.size() < count; at->Next())
    events.push_back({number_at_end(at->key().ToStringView()), at->value().ToString()});
  if (!at->status().ok()) return store_->failure("read from", at->status());
  return events;
}

}  // namespace perdura::storage
