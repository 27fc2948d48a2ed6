// A tier in an S3-compatible service. Source of the requests: the Amazon S3 API reference.
#pragma once

#include <memory>
#include <mutex>

#include "storage/object_store.hpp"
#include "storage/s3/client.hpp"

namespace perdura::storage::s3 {

inline constexpr std::size_t list_names_max = 1'000'000;

// One request at a time; thread-safe.
class s3_store : public object_store {
 public:
  static result<std::unique_ptr<s3_store>> make(s3_options options);

  // A lost acknowledgement followed by "there is one already" counts as ours if the bytes are the same.
  result<void> put_if_absent(const std::string& name, std::string_view bytes) const override;
  // In parts, if it is larger than one; those of an earlier attempt that are right are not sent again.
  result<void> put_file(const std::string& name, const std::filesystem::path& source,
                        put_mode mode) const override;
  result<std::string> get(const std::string& name) const override;
  result<void> get_range(const std::string& name, std::uint64_t offset,
                         std::span<std::byte> out) const override;
  result<std::optional<std::uint64_t>> size(const std::string& name) const override;
  result<void> remove(const std::string& name) const override;
  result<std::vector<object_entry>> list(const std::string& folder) const override;
  std::string where() const override { return client_->where(); }
  void cancel() const override { client_->cancel(); }

 private:
  explicit s3_store(std::unique_ptr<client> c) : client_(std::move(c)) {}
  result<void> put(const std::string& name, std::string_view bytes, put_mode mode) const;
  result<std::optional<std::uint64_t>> look(const std::string& name) const;
  result<std::string> fetch(const std::string& name) const;

  std::unique_ptr<client> client_;
  mutable std::mutex mutex_;  // of the client
};

}  // namespace perdura::storage::s3
