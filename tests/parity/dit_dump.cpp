// Writes what dit_parity.py compares with PyTorch: a DiT's parameters, a batch, its prediction, loss and
// gradient.
//   dit_dump FOLDER [fp32 | bf16]    FOLDER/index.json names the arrays, each a file of raw little-endian
//                                    float32 or int64; in bf16 the parameters are rounded to it
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/philox.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/model/torch.hpp"

namespace {

using namespace perdura;
using namespace perdura::worker;

constexpr std::int64_t batch = 16;

std::vector<float> normals(std::size_t count, std::uint32_t which, float deviation) {
  std::vector<float> v(count);
  kernels::fill_normal({1, 0, which, kernels::random_stream::canary}, v);
  for (float& x : v) x *= deviation;
  return v;
}

void write(const std::filesystem::path& path, const void* data, std::size_t bytes) {
  std::ofstream(path, std::ios::binary)
      .write(static_cast<const char*>(data), static_cast<std::streamsize>(bytes));
}

void write(const std::filesystem::path& path, const std::vector<float>& values) {
  write(path, values.data(), values.size() * sizeof(float));
}

std::string index_of(const denoiser& model, double loss) {
  std::string json =
      "{\"batch\": " + std::to_string(batch) + ", \"loss\": " + std::to_string(loss) + ", \"parameters\": [";
  for (const parameter& p : model.parameters()) {
    json += (p.first == 0 ? "\n" : ",\n") + std::string("{\"name\": \"") + p.name + "\", \"shape\": [";
    for (std::size_t i = 0; i < p.shape.size(); ++i)
      json += (i == 0 ? "" : ", ") + std::to_string(p.shape[i]);
    json += "], \"first\": " + std::to_string(p.first) + "}";
  }
  return json + "]}\n";
}

}  // namespace

int main(int argc, char** argv) {
  const std::string precision = argc > 2 ? argv[2] : "fp32";
  if (argc < 2 || (precision != "fp32" && precision != "bf16")) {
    std::fprintf(stderr, "usage: dit_dump FOLDER [fp32 | bf16]\n");
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  const auto model = make_denoiser({}).value();
  std::vector<float> parameters =
      normals(model->parameter_count(), 1, 0.08F);  // as initialised, half would be zero
  const auto count = static_cast<std::size_t>(batch * model->image().count());
  std::vector<float> noisy = normals(count, 2, 1.0F), target = normals(count, 3, 1.0F);
  std::vector<float> time(batch), gradient(parameters.size());
  std::vector<std::int64_t> label(batch);
  kernels::fill_uniform({1, 0, 4, kernels::random_stream::canary}, time);
  for (std::size_t i = 0; i < label.size(); ++i)
    label[i] = static_cast<std::int64_t>(i) % (model->null_class() + 1);

  std::vector<kernels::bf16> halves(parameters.size());
  model->bind(parameters.data());
  if (precision == "bf16") {
    kernels::round_to_bf16(parameters, halves);
    std::ranges::transform(halves, parameters.begin(), kernels::float_of);
    model->bind(halves.data());
  }
  const double loss = loss_gradient(*model, {noisy.data(), time.data(), label.data(), target.data(), batch},
                                    *model->make_slot(), gradient.data());
  const image_shape shape = model->image();
  const at::Tensor predicted =
      model->forward(at::from_blob(noisy.data(), {batch, shape.channels, shape.height, shape.width}),
                     at::from_blob(time.data(), {batch}), at::from_blob(label.data(), {batch}, at::kLong));
  write(folder / "parameters", parameters);
  write(folder / "noisy", noisy);
  write(folder / "target", target);
  write(folder / "time", time);
  write(folder / "label", label.data(), label.size() * sizeof(std::int64_t));
  write(folder / "predicted", predicted.const_data_ptr<float>(), count * sizeof(float));
  write(folder / "gradient", gradient);
  const std::string index = index_of(*model, loss);
  write(folder / "index.json", index.data(), index.size());
  return std::filesystem::exists(folder / "index.json") ? 0 : 1;
}
