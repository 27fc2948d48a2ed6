#include "storage/interchange/export.hpp"

#include <algorithm>
#include <bit>
#include <deque>
#include <vector>

#include "storage/interchange/small_file.hpp"
#include "storage/safetensors/writer.hpp"

namespace perdura::interchange {

namespace fs = std::filesystem;
static_assert(std::endian::native == std::endian::little, "chunks and files are little-endian");

namespace {

constexpr std::size_t tiles_kept_max = 16;

// One array of a checkpoint as one flat vector of floats.
class flat_reader {
 public:
  flat_reader(storage::checkpoint_reader& from, storage::chunk_kind kind) : from_(from), kind_(kind) {}

  // f(floats) for the elements [first, first + count), some at a time, in order.
  template <class F>
  result<void> visit(const piece& p, F f) {
    const auto& tiles = from_.contents().tiles;
    auto at = std::ranges::upper_bound(tiles, p.first, {}, &tile::first) - tiles.begin() - 1;
    for (std::uint64_t done = 0; done < p.count; ++at) {
      const auto& t = tiles[static_cast<std::size_t>(at)];
      const auto values = load(static_cast<std::uint32_t>(at));
      if (!values) return values.failure();
      const auto offset = p.first + done - t.first;
      const auto n = std::min<std::uint64_t>(p.count - done, t.size - offset);
      if (auto taken = f((*values)->subspan(offset, n)); !taken) return taken;
      done += n;
    }
    return {};
  }

 private:
  struct loaded {
    std::uint32_t tile;
    std::vector<float> values;
    std::span<const float> view;
  };

  result<const std::span<const float>*> load(std::uint32_t index) {
    for (const auto& l : kept_)
      if (l.tile == index) return &l.view;
    if (kept_.size() == tiles_kept_max) kept_.pop_front();
    loaded l{index, std::vector<float>(from_.contents().tiles[index].size), {}};
    const auto done = from_.load(tile_id(index), kind_, std::as_writable_bytes(std::span(l.values)));
    if (!done) return done.failure();
    l.view = l.values;
    kept_.push_back(std::move(l));
    return &kept_.back().view;
  }

  storage::checkpoint_reader& from_;
  storage::chunk_kind kind_;
  std::deque<loaded> kept_;
};

result<void> check(const storage::manifest& m, storage::chunk_kind kind) {
  const std::string what = "checkpoint " + to_string(m.key());
  const auto array = std::ranges::find(m.arrays, kind, &storage::state_array::kind);
  if (array == m.arrays.end()) return error{errc::not_found, what + " holds no " + to_string(kind)};
  if (array->element_bytes != sizeof(float))
    return error{errc::version_mismatch, what + " holds " + to_string(kind) + " of " +
                                             std::to_string(array->element_bytes) +
                                             " bytes an element, not 4"};
  if (m.tensors.empty())
    return error{errc::invalid_argument, what + " does not say what its tensors are called (" + m.created_by +
                                             " wrote it): let the job go on and export a newer one"};
  return {};
}

result<std::vector<outer_tensor>> tensors_of(const storage::manifest& m, const model_config& model, format as,
                                             std::string& config) {
  if (as == format::plain) return plain_tensors(m.tensors);
  const auto shape = dit_shape_of(model, m.tensors);
  if (!shape) return shape.failure();
  config = diffusers_config(*shape);
  return diffusers_tensors(*shape, m.tensors);
}

safetensors::header header_of(const storage::manifest& m, storage::chunk_kind kind,
                              const std::vector<outer_tensor>& tensors) {
  safetensors::header h;
  h.metadata = {{"format", "pt"},  // which libraries ask for
                {"perdura.job", m.job},
                {"perdura.step", to_string(m.standing.step)},
                {"perdura.weights", to_string(kind)}};
  for (const auto& t : tensors) h.tensors.push_back({t.name, safetensors::dtype::f32, t.shape, 0, 0});
  return h;
}

}  // namespace

result<exported> export_weights(storage::checkpoint_reader& from, const model_config& model,
                                const export_options& o) {
  const auto& m = from.contents();
  if (auto fine = check(m, o.weights); !fine) return fine.failure();
  std::string config;
  const auto tensors = tensors_of(m, model, o.as, config);
  if (!tensors) return tensors.failure();
  const bool is_plain = o.as == format::plain;
  const auto folder = is_plain ? o.folder : o.folder / "transformer";
  const auto file = folder / (is_plain ? "model.safetensors" : "diffusion_pytorch_model.safetensors");
  if (auto made = storage::make_folders(folder); !made) return made.failure();
  auto out = safetensors::writer::create(file, header_of(m, o.weights, *tensors));
  if (!out) return out.failure();
  if (auto done = write_small_file(o.folder / "job.toml", m.job_text); !done) return done.failure();
  if (!is_plain) {
    if (auto done = write_small_file(folder / "config.json", config); !done) return done.failure();
    if (auto done = write_small_file(folder / "perdura_dit.py", dit_loader); !done) return done.failure();
  }
  flat_reader values(from, o.weights);
  for (const auto& t : *tensors)
    for (const auto& p : t.pieces) {
      const auto done = values.visit(
          p, [&](std::span<const float> some) { return out->append(t.name, std::as_bytes(some)); });
      if (!done) return done.failure();
    }
  if (auto done = out->finish(); !done) return done.failure();
  return exported{file, tensors->size(), out->contents().data_bytes()};
}

}  // namespace perdura::interchange
