#include "worker/weights.hpp"

#include <algorithm>

#include "storage/checkpoint_reader.hpp"

namespace perdura::worker {
namespace {

// What a checkpoint's array is made of is checked against the model before a byte is read.
result<void> check_array(const storage::manifest& m, storage::chunk_kind kind, std::size_t count) {
  const std::string what = "checkpoint " + to_string(m.key());
  const auto array =
      std::find_if(m.arrays.begin(), m.arrays.end(), [&](const auto& a) { return a.kind == kind; });
  if (array == m.arrays.end())
    return error{errc::not_found,
                 what + " holds no " + to_string(kind) +
                     (kind == storage::chunk_kind::ema ? "; --raw-weights takes the parameters" : "")};
  const std::uint64_t held = m.tiles.back().first + m.tiles.back().size;
  if (array->element_bytes == sizeof(float) && held == count) return {};
  return error{errc::version_mismatch, what + " holds " + std::to_string(held) + " parameters of " +
                                           std::to_string(array->element_bytes) +
                                           " bytes, but its job's model has " + std::to_string(count) +
                                           " of " + std::to_string(sizeof(float)) +
                                           ": another version of Perdura wrote it (" + m.created_by + ")"};
}

}  // namespace

result<void> load_weights(const chosen_checkpoint& from, storage::chunk_kind array, std::span<float> to) {
  if (auto fits = check_array(from.contents, array, to.size()); !fits) return fits;
  storage::checkpoint_reader reader(from.store, from.contents);
  for (std::uint32_t i = 0; i < from.contents.tiles.size(); ++i) {
    const tile& t = from.contents.tiles[i];
    const auto loaded = reader.load(tile_id(i), array, std::as_writable_bytes(to.subspan(t.first, t.size)));
    if (!loaded) return error{loaded.failure().code, loaded.failure().message + others_than(from)};
  }
  return {};
}

}  // namespace perdura::worker
