#include "storage/interchange/names.hpp"

#include <boost/json.hpp>
#include <cmath>
#include <map>

namespace perdura::interchange {

namespace json = boost::json;
using storage::tensor_entry;

namespace {

constexpr std::uint64_t mlp_ratio = 4;  // the only one that diffusers' class has
constexpr std::uint64_t time_features = 256;

error no_counterpart(const std::string& why) {
  return {errc::invalid_argument,
          "this model has no counterpart in diffusers: " + why + "; the plain format takes any model"};
}

std::uint64_t count_of(const std::vector<std::uint64_t>& shape) {
  std::uint64_t n = 1;
  for (const auto d : shape) n *= d;
  return n;
}

// Our tensors by name, for one that is written out in diffusers' order.
class mapping {
 public:
  explicit mapping(const std::vector<tensor_entry>& tensors) {
    for (const auto& t : tensors) by_name_.emplace(t.name, &t);
  }

  // The whole of `ours`, in another shape. All sizes are checked here: `shape` says how many elements it has.
  void whole(const std::string& ours, std::string theirs, std::vector<std::uint64_t> shape) {
    part(ours, std::move(theirs), std::move(shape), 0, 1);
  }
  // Part `index` of `of` equal ones, by rows.
  void part(const std::string& ours, std::string theirs, std::vector<std::uint64_t> shape,
            std::uint64_t index, std::uint64_t of) {
    const auto count = count_of(shape);
    const auto* t = take(ours, count * of);
    if (t != nullptr)
      out_.push_back({std::move(theirs), std::move(shape), {{t->first + index * count, count}}});
  }
  // Rows of `row` elements, there pixel by pixel, here channel by channel.
  void pixels_first(const std::string& ours, std::string theirs, std::vector<std::uint64_t> shape,
                    std::uint64_t channels, std::uint64_t row) {
    const auto* t = take(ours, count_of(shape));
    if (t == nullptr) return;
    const auto pixels = shape.front() / channels;
    outer_tensor o{std::move(theirs), std::move(shape), {}};
    if (channels == 1) {
      o.pieces.push_back({t->first, pixels * row});
    } else {
      for (std::uint64_t pixel = 0; pixel < pixels; ++pixel)
        for (std::uint64_t channel = 0; channel < channels; ++channel)
          o.pieces.push_back({t->first + (channel * pixels + pixel) * row, row});
    }
    out_.push_back(std::move(o));
  }
  // weight [outputs, inputs] and bias [outputs].
  void layer(const std::string& ours, const std::string& theirs, std::uint64_t outputs,
             std::uint64_t inputs) {
    whole(ours + ".weight", theirs + ".weight", {outputs, inputs});
    whole(ours + ".bias", theirs + ".bias", {outputs});
  }

  result<std::vector<outer_tensor>> done() {
    for (const auto& [name, t] : by_name_)
      if (!taken_.contains(name)) flaws_ += (flaws_.empty() ? "" : ", ") + name + " is unknown there";
    if (!flaws_.empty()) return no_counterpart(flaws_);
    return std::move(out_);
  }

 private:
  const tensor_entry* take(const std::string& ours, std::uint64_t count) {
    const auto found = by_name_.find(ours);
    if (found != by_name_.end() && count_of(found->second->shape) == count) {
      taken_[ours] = true;
      return found->second;
    }
    flaws_ += (flaws_.empty() ? "" : ", ") + ours +
              (found == by_name_.end() ? " is missing" : " has another size than the job file says");
    taken_[ours] = true;
    return nullptr;
  }

  std::map<std::string, const tensor_entry*> by_name_;
  std::map<std::string, bool> taken_;
  std::string flaws_;
  std::vector<outer_tensor> out_;
};

void map_block(mapping& m, const dit_shape& s, std::uint64_t index) {
  const auto d = s.width;
  const std::string ours = "blocks." + std::to_string(index) + ".";
  const std::string theirs = "transformer_blocks." + std::to_string(index) + ".";
  const std::string embedding = theirs + "norm1.emb.";
  m.layer("time.0", embedding + "timestep_embedder.linear_1", d, time_features);
  m.layer("time.2", embedding + "timestep_embedder.linear_2", d, d);
  m.whole("label.weight", embedding + "class_embedder.embedding_table.weight", {s.classes + 1, d});
  m.layer(ours + "condition", theirs + "norm1.linear", 6 * d, d);
  std::uint64_t which = 0;
  for (const char* name : {"to_q", "to_k", "to_v"}) {
    m.part(ours + "qkv.weight", theirs + "attn1." + name + ".weight", {d, d}, which, 3);
    m.part(ours + "qkv.bias", theirs + "attn1." + name + ".bias", {d}, which, 3);
    ++which;
  }
  m.layer(ours + "out", theirs + "attn1.to_out.0", d, d);
  m.layer(ours + "mlp.0", theirs + "ff.net.0.proj", mlp_ratio * d, d);
  m.layer(ours + "mlp.2", theirs + "ff.net.2", d, mlp_ratio * d);
}

const tensor_entry* find(const std::vector<tensor_entry>& tensors, const std::string& name) {
  for (const auto& t : tensors)
    if (t.name == name && t.shape.size() == 2) return &t;
  return nullptr;
}

}  // namespace

result<dit_shape> dit_shape_of(const model_config& model, const std::vector<tensor_entry>& tensors) {
  const auto* patch = find(tensors, "patch.weight");
  const auto* position = find(tensors, "position");
  const auto* label = find(tensors, "label.weight");
  if (model.kind != "dit" || patch == nullptr || position == nullptr || label == nullptr)
    return no_counterpart("its kind is \"" + model.kind + "\", and only \"dit\" has one");
  if (model.mlp_ratio != mlp_ratio)
    return no_counterpart("its mlp_ratio is " + std::to_string(model.mlp_ratio) + ", there it is always 4");
  const std::uint64_t pixels = std::uint64_t{model.patch} * model.patch;
  const auto tokens = position->shape[0];
  const auto side = static_cast<std::uint64_t>(std::llround(std::sqrt(static_cast<double>(tokens))));
  if (side * side != tokens) return no_counterpart("its images are not square");
  if (pixels == 0 || patch->shape[1] % pixels != 0 || label->shape[0] < 2 || model.heads == 0)
    return no_counterpart("its tensors are not those of its job file");
  return dit_shape{model.width,        model.depth,        model.heads, model.patch, patch->shape[1] / pixels,
                   side * model.patch, label->shape[0] - 1};
}

std::vector<outer_tensor> plain_tensors(const std::vector<tensor_entry>& tensors) {
  std::vector<outer_tensor> out;
  for (const auto& t : tensors) out.push_back({t.name, t.shape, {{t.first, count_of(t.shape)}}});
  return out;
}

result<std::vector<outer_tensor>> diffusers_tensors(const dit_shape& s,
                                                    const std::vector<tensor_entry>& tensors) {
  mapping m(tensors);
  const auto d = s.width;
  const auto features = s.channels * s.patch * s.patch;
  m.whole("patch.weight", "pos_embed.proj.weight", {d, s.channels, s.patch, s.patch});
  m.whole("patch.bias", "pos_embed.proj.bias", {d});
  m.whole("position", positions_name, {1, s.tokens(), d});
  for (std::uint64_t i = 0; i < s.depth; ++i) map_block(m, s, i);
  m.layer("head.condition", "proj_out_1", 2 * d, d);
  m.pixels_first("head.weight", "proj_out_2.weight", {features, d}, s.channels, d);
  m.pixels_first("head.bias", "proj_out_2.bias", {features}, s.channels, 1);
  return m.done();
}

std::string diffusers_config(const dit_shape& s) {
  const json::object o{{"_class_name", "DiTTransformer2DModel"},
                       {"activation_fn", "gelu-approximate"},
                       {"attention_bias", true},
                       {"attention_head_dim", s.width / s.heads},
                       {"dropout", 0.0},
                       {"in_channels", s.channels},
                       {"norm_elementwise_affine", false},
                       {"norm_eps", 1e-6},
                       {"norm_num_groups", 32},
                       {"norm_type", "ada_norm_zero"},
                       {"num_attention_heads", s.heads},
                       {"num_embeds_ada_norm", s.classes},
                       {"num_layers", s.depth},
                       {"out_channels", s.channels},
                       {"patch_size", s.patch},
                       {"sample_size", s.side},
                       {"upcast_attention", false}};
  std::string text = json::serialize(o);
  text += '\n';
  return text;
}

// A quarter of the width each: sine and cosine of the column, sine and cosine of the row (PatchEmbed calls
// get_2d_sincos_pos_embed with its grid that way round). Positions are scaled by base_size / grid, which
// is 1.
std::vector<float> fixed_positions(const dit_shape& s) {
  const auto across = s.side / s.patch;
  const auto quarter = s.width / 4;
  std::vector<float> out;
  out.reserve(s.tokens() * s.width);
  for (std::uint64_t token = 0; token < s.tokens(); ++token)
    for (const auto position : {token % across, token / across})
      for (const bool is_cosine : {false, true})
        for (std::uint64_t i = 0; i < quarter; ++i) {
          const double angle = static_cast<double>(position) *
                               std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(quarter));
          out.push_back(static_cast<float>(is_cosine ? std::cos(angle) : std::sin(angle)));
        }
  return out;
}

const char* const dit_loader =
#include "dit_loader.inc"
    ;

}  // namespace perdura::interchange
