// A DiT's weights out and back, for diffusers_parity.py.
//   dit_export make FOLDER          a checkpoint in FOLDER/store, exported to FOLDER/diffusers and
//   FOLDER/plain, and a
//                                   batch with its prediction: raw little-endian float32 or int64 in FOLDER
//   dit_export check FOLDER DIR     imports DIR and compares it with what was exported, bit for bit
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/philox.hpp"
#include "storage/checkpoint_writer.hpp"
#include "storage/interchange/export.hpp"
#include "storage/interchange/import.hpp"
#include "storage/object_folder.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/model/torch.hpp"
#include "worker/trainer/state.hpp"

namespace {

using namespace perdura;
using namespace perdura::worker;
namespace fs = std::filesystem;

constexpr std::int64_t batch = 16;
const storage::checkpoint_key exported_key{"parity", timeline_number(0), step_number(5)};

std::vector<float> normals(std::size_t count, std::uint32_t which, float deviation) {
  std::vector<float> v(count);
  kernels::fill_normal({1, 0, which, kernels::random_stream::canary}, v);
  for (float& x : v) x *= deviation;
  return v;
}

// As initialised, half would be zero.
std::vector<float> parameters_of(const denoiser& model) { return normals(model.parameter_count(), 1, 0.08F); }

void write(const fs::path& path, const void* data, std::size_t bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

template <class T>
void write(const fs::path& path, const std::vector<T>& values) {
  write(path, values.data(), values.size() * sizeof(T));
}

std::vector<storage::tensor_entry> tensors_of(const denoiser& model) {
  std::vector<storage::tensor_entry> named;
  for (const auto& p : model.parameters())
    named.push_back({p.name, {p.shape.begin(), p.shape.end()}, p.first});
  return named;
}

storage::manifest save(const fs::path& store, const denoiser& model, const std::vector<float>& parameters) {
  storage::manifest m;
  m.job = exported_key.job;
  m.standing.step = exported_key.step;
  m.tiles = cut_tiles(model.parameters());
  m.tensors = tensors_of(model);
  m.arrays = {{storage::chunk_kind::parameters, sizeof(float)}};
  storage::checkpoint_writer writer(store, {1, 1});
  writer.begin(exported_key);
  for (std::uint32_t i = 0; i < m.tiles.size(); ++i) {
    const auto values = std::span(parameters).subspan(m.tiles[i].first, m.tiles[i].size);
    m.chunks.push_back(
        writer.append(tile_id(i), storage::chunk_kind::parameters, std::as_bytes(values)).value());
  }
  writer.finish().value();
  return m;
}

int make(const fs::path& folder, const job_config& job, denoiser& model) {
  auto parameters = parameters_of(model);
  const auto m = save(folder / "store", model, parameters);
  storage::checkpoint_reader reader(folder / "store", m);
  using interchange::format;
  const auto kind = storage::chunk_kind::parameters;
  interchange::export_weights(reader, job.model, {folder / "diffusers", format::diffusers, kind}).value();
  interchange::export_weights(reader, job.model, {folder / "plain", format::plain, kind}).value();

  const auto count = static_cast<std::size_t>(batch * model.image().count());
  auto noisy = normals(count, 2, 1.0F);
  std::vector<float> time(batch);
  std::vector<std::int64_t> label(batch);
  kernels::fill_uniform({1, 0, 4, kernels::random_stream::canary}, time);
  for (std::size_t i = 0; i < label.size(); ++i)
    label[i] = static_cast<std::int64_t>(i) % (model.null_class() + 1);
  model.bind(parameters.data());
  const image_shape shape = model.image();
  const at::Tensor predicted =
      model.forward(at::from_blob(noisy.data(), {batch, shape.channels, shape.height, shape.width}),
                    at::from_blob(time.data(), {batch}), at::from_blob(label.data(), {batch}, at::kLong));
  write(folder / "parameters", parameters);
  write(folder / "noisy", noisy);
  write(folder / "time", time);
  write(folder / "label", label);
  write(folder / "predicted", predicted.const_data_ptr<float>(), count * sizeof(float));
  return 0;
}

int check(const fs::path& folder, const fs::path& from, const job_config& job, const denoiser& model) {
  interchange::import_options o;
  o.from = from;
  o.store = folder / "imported";
  o.job = "back";
  o.model = job.model;
  o.tiles = cut_tiles(model.parameters());
  o.tensors = tensors_of(model);
  o.who = {2, 2};
  fs::remove_all(o.store);
  const auto done = interchange::import_weights(o);
  if (!done) {
    std::fprintf(stderr, "%s\n", done.failure().message.c_str());
    return 1;
  }
  const auto parameters = parameters_of(model);
  auto reader = storage::checkpoint_reader::open(o.store, done->key).value();
  for (std::uint32_t i = 0; i < o.tiles.size(); ++i) {
    std::vector<float> values(o.tiles[i].size);
    reader.load(tile_id(i), storage::chunk_kind::parameters, std::as_writable_bytes(std::span(values)))
        .value();
    if (std::memcmp(values.data(), parameters.data() + o.tiles[i].first, values.size() * sizeof(float)) !=
        0) {
      std::fprintf(stderr, "tile %u came back with other bits\n", i);
      return 1;
    }
  }
  std::printf("%llu tensors%s\n", static_cast<unsigned long long>(done->tensors),
              done->has_fixed_positions ? ", positions fixed" : "");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 2 ? argv[1] : "";
  if ((mode != "make" || argc != 3) && (mode != "check" || argc != 4)) {
    std::fprintf(stderr, "usage: dit_export make FOLDER | check FOLDER DIR\n");
    return 2;
  }
  const job_config job;
  const auto model = make_denoiser(job).value();
  return mode == "make" ? make(argv[2], job, *model) : check(argv[2], argv[3], job, *model);
}
