#include "worker/model/dit_layout.hpp"

#include "kernels/dit_pointwise.hpp"

namespace perdura::worker {
namespace {

class layout_writer {
 public:
  explicit layout_writer(dit_layout& to) : to_(to) {}

  void next_stage() { ++stage_; }
  std::uint64_t add(std::string name, std::vector<std::int64_t> shape) {
    std::uint64_t count = 1;
    for (const std::int64_t n : shape) count *= static_cast<std::uint64_t>(n);
    to_.parameters.push_back({std::move(name), std::move(shape), to_.count, count, stage_});
    to_.count += count;
    return to_.count - count;
  }
  linear add_linear(const std::string& name, std::int64_t inputs, std::int64_t outputs) {
    const std::uint64_t weight = add(name + ".weight", {outputs, inputs});
    return {weight, add(name + ".bias", {outputs}), inputs, outputs};
  }

 private:
  dit_layout& to_;
  std::uint32_t stage_ = 0;
};

error bad(const std::string& field, std::uint32_t value, const std::string& allowed) {
  return {errc::invalid_argument, "model." + field + " = " + std::to_string(value) + ": " + allowed};
}

}  // namespace

result<dit_size> dit_size_of(const model_config& model, const data_shape& data) {
  const image_shape& image = data.image;
  if (model.width == 0 || model.width > 8192) return bad("width", model.width, "must be in 8..8192");
  if (model.depth == 0 || model.depth > 256) return bad("depth", model.depth, "must be in 1..256");
  if (model.mlp_ratio == 0 || model.mlp_ratio > 16)
    return bad("mlp_ratio", model.mlp_ratio, "must be in 1..16");
  if (model.heads == 0 || model.width % (8 * model.heads) != 0) {
    return bad("heads", model.heads,
               "width (" + std::to_string(model.width) + ") must be a multiple of 8 x heads");
  }
  if (model.patch == 0 || image.height % model.patch != 0 || image.width % model.patch != 0) {
    return bad("patch", model.patch,
               "must divide the image's sides, " + std::to_string(image.height) + " and " +
                   std::to_string(image.width));
  }
  return dit_size{image,
                  data.classes,
                  model.width,
                  model.depth,
                  model.heads,
                  model.patch,
                  std::int64_t{model.width} * model.mlp_ratio};
}

dit_layout make_dit_layout(const dit_size& size) {
  dit_layout to;
  layout_writer writer(to);
  const std::int64_t d = size.width;
  to.patch = writer.add_linear("patch", size.features(), d);
  to.position = writer.add("position", {size.tokens(), d});
  to.label = writer.add("label.weight", {size.classes + 1, d});
  to.time_in = writer.add_linear("time.0", kernels::time_features_count, d);
  to.time_out = writer.add_linear("time.2", d, d);
  for (std::int64_t i = 0; i < size.depth; ++i) {
    writer.next_stage();
    const std::string name = "blocks." + std::to_string(i) + ".";
    dit_block block;
    block.condition = writer.add_linear(name + "condition", d, 6 * d);
    block.qkv = writer.add_linear(name + "qkv", d, 3 * d);
    block.out = writer.add_linear(name + "out", d, d);
    block.expand = writer.add_linear(name + "mlp.0", d, size.hidden);
    block.contract = writer.add_linear(name + "mlp.2", size.hidden, d);
    to.blocks.push_back(block);
  }
  writer.next_stage();
  to.head_condition = writer.add_linear("head.condition", d, 2 * d);
  to.head = writer.add_linear("head", d, size.features());
  return to;
}

}  // namespace perdura::worker
