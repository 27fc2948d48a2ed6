#include <doctest/doctest.h>

#include <bit>
#include <boost/json.hpp>
#include <cmath>
#include <limits>

#include "storage/interchange/export.hpp"
#include "storage/interchange/half.hpp"
#include "storage/interchange/import.hpp"
#include "storage/safetensors/tensor_folder.hpp"
#include "storage/safetensors/writer.hpp"
#include "tests/unit/storage_fixture.hpp"

using namespace perdura;
using namespace perdura::interchange;
using storage::chunk_kind;
using storage::temporary_folder;
using storage::tensor_entry;
namespace fs = std::filesystem;
namespace st = perdura::safetensors;

namespace {

// A DiT for 4x4 images of two channels and three classes, cut into tiles that no tensor fits.
struct small_model {
  model_config config;
  std::vector<tensor_entry> tensors;
  std::vector<tile> tiles;
  std::uint64_t elements = 0;

  small_model() {
    config.width = 8;
    config.depth = 2;
    config.heads = 1;
    config.patch = 2;
    add("patch.weight", {8, 8});
    add("patch.bias", {8});
    add("position", {4, 8});
    add("label.weight", {4, 8});
    layer("time.0", 8, 256);
    layer("time.2", 8, 8);
    for (const std::string block : {"blocks.0.", "blocks.1."}) {
      layer(block + "condition", 48, 8);
      layer(block + "qkv", 24, 8);
      layer(block + "out", 8, 8);
      layer(block + "mlp.0", 32, 8);
      layer(block + "mlp.2", 8, 32);
    }
    layer("head.condition", 16, 8);
    layer("head", 8, 8);
    for (std::uint64_t first = 0; first < elements; first += 100)
      tiles.push_back({first, static_cast<std::uint32_t>(std::min<std::uint64_t>(100, elements - first)), 0});
  }

  void add(const std::string& name, std::vector<std::uint64_t> shape) {
    std::uint64_t count = 1;
    for (const auto n : shape) count *= n;
    tensors.push_back({name, std::move(shape), elements});
    elements += count;
  }
  void layer(const std::string& name, std::uint64_t outputs, std::uint64_t inputs) {
    add(name + ".weight", {outputs, inputs});
    add(name + ".bias", {outputs});
  }
  std::uint64_t first_of(const std::string& name) const {
    for (const auto& t : tensors)
      if (t.name == name) return t.first;
    FAIL("no tensor " << name);
    return 0;
  }
};

// Element i is i in parameters, 10000 + i in the average.
float value_of(chunk_kind kind, std::uint64_t i) {
  return static_cast<float>(i + (kind == chunk_kind::ema ? 10000 : 0));
}

struct saved {
  temporary_folder folder;
  small_model model;
  storage::manifest contents;
  fs::path store = folder.path() / "store";
  fs::path out = folder.path() / "out";

  saved() {
    contents = storage::empty_manifest(storage::at_step(7));
    contents.tiles = model.tiles;
    contents.tensors = model.tensors;
    storage::checkpoint_writer writer(store, storage::writer_a);
    writer.begin(contents.key());
    for (std::uint32_t i = 0; i < model.tiles.size(); ++i) {
      std::vector<float> state;
      for (const auto kind : storage::all_kinds)
        for (std::uint64_t e = 0; e < model.tiles[i].size; ++e)
          state.push_back(value_of(kind, model.tiles[i].first + e));
      const auto chunks = writer.append_tile(tile_id(i), std::as_bytes(std::span(state))).value();
      contents.chunks.insert(contents.chunks.end(), chunks.begin(), chunks.end());
    }
    writer.finish().value();
    storage::sort_chunks(contents);
  }

  result<exported> write(format as, chunk_kind kind = chunk_kind::parameters) const {
    storage::checkpoint_reader reader(store, contents);
    return export_weights(reader, model.config, {out, as, kind});
  }
  import_options import_from(const fs::path& from) const {
    import_options o;
    o.from = from;
    o.store = store;
    o.job = "import-1";
    o.job_text = "name = \"x\"\n";
    o.model = model.config;
    o.tiles = model.tiles;
    o.tensors = model.tensors;
    o.who = storage::writer_b;
    o.created_by = "test";
    return o;
  }
  // Of the imported checkpoint.
  std::vector<float> array(chunk_kind kind) const {
    auto reader =
        storage::checkpoint_reader::open(store, {"import-1", timeline_number(0), step_number(0)}).value();
    std::vector<float> all(model.elements);
    for (std::uint32_t i = 0; i < model.tiles.size(); ++i)
      reader
          .load(tile_id(i), kind,
                std::as_writable_bytes(std::span(all).subspan(model.tiles[i].first, model.tiles[i].size)))
          .value();
    return all;
  }
  bool is_as_saved(chunk_kind array_kind, chunk_kind of = chunk_kind::parameters) const {
    const auto all = array(array_kind);
    for (std::uint64_t i = 0; i < all.size(); ++i)
      if (all[i] != value_of(of, i)) return false;
    return true;
  }
};

std::vector<float> floats(const st::tensor_folder& files, const std::string& name) {
  const auto* t = files.find(name);
  REQUIRE_MESSAGE(t != nullptr, name);
  std::vector<float> values(t->elements());
  REQUIRE(files.read(name, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

using changes = std::map<std::string, std::vector<float>>;

// The tensors of `from`, some replaced (by others of any length, then one-dimensional) or, where empty, left
// out.
void rewrite(const fs::path& from, const fs::path& to, const changes& changed) {
  const auto in = st::tensor_folder::open(from).value();
  st::header h;
  std::map<std::string, std::vector<float>> values;
  for (const auto& name : in.names()) values[name] = floats(in, name);
  for (const auto& [name, v] : changed) values[name] = v;
  for (const auto& [name, v] : values) {
    if (v.empty()) continue;
    const auto* t = in.find(name);
    const bool same_size = t != nullptr && t->elements() == v.size();
    h.tensors.push_back(
        {name, st::dtype::f32, same_size ? t->shape : std::vector<std::uint64_t>{v.size()}, 0, 0});
  }
  auto out = st::writer::create(to, h, st::if_there::replace).value();
  for (const auto& t : h.tensors) out.append(t.name, std::as_bytes(std::span(values[t.name]))).value();
  out.finish().value();
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

}  // namespace

TEST_CASE("plain weights go out and come back bit for bit, the average with them and moments zero") {
  saved s;
  const auto done = s.write(format::plain);
  REQUIRE(done);
  CHECK(done->tensors == s.model.tensors.size());
  CHECK(done->bytes == s.model.elements * sizeof(float));
  CHECK(storage::read_file(s.out / "job.toml") == s.contents.job_text);
  const auto in = import_weights(s.import_from(s.out));
  REQUIRE_MESSAGE(in, in.failure().message);
  CHECK(in->as == format::plain);
  CHECK(s.is_as_saved(chunk_kind::parameters));
  CHECK(s.is_as_saved(chunk_kind::ema));
  CHECK(s.array(chunk_kind::first_moment) == std::vector<float>(s.model.elements, 0.0F));
  CHECK(s.array(chunk_kind::second_moment) == std::vector<float>(s.model.elements, 0.0F));
  const auto m = storage::read_manifest(storage::object_folder(s.store), in->key).value();
  CHECK(m.standing.step == step_number(0));
  CHECK(m.standing.outcome.optimizer_time == 0);
  CHECK(m.tensors == s.model.tensors);
}

TEST_CASE("the average is exported where it is asked for") {
  saved s;
  REQUIRE(s.write(format::plain, chunk_kind::ema));
  REQUIRE(import_weights(s.import_from(s.out)));
  CHECK(s.is_as_saved(chunk_kind::parameters, chunk_kind::ema));
}

TEST_CASE("diffusers' names and shapes hold what ours do") {
  saved s;
  const auto done = s.write(format::diffusers);
  REQUIRE_MESSAGE(done, done.failure().message);
  CHECK(done->file == s.out / "transformer" / "diffusion_pytorch_model.safetensors");
  const auto files = st::tensor_folder::open(s.out / "transformer").value();
  CHECK(files.find("pos_embed.proj.weight")->shape == std::vector<std::uint64_t>{8, 2, 2, 2});
  CHECK(files.find("pos_embed.pos_embed")->shape == std::vector<std::uint64_t>{1, 4, 8});
  const auto qkv = s.model.first_of("blocks.1.qkv.weight");
  CHECK(floats(files, "transformer_blocks.1.attn1.to_k.weight").front() == static_cast<float>(qkv + 64));
  CHECK(floats(files, "transformer_blocks.1.attn1.to_v.bias").back() ==
        static_cast<float>(s.model.first_of("blocks.1.qkv.bias") + 23));
  const std::string table = ".norm1.emb.class_embedder.embedding_table.weight";
  CHECK(floats(files, "transformer_blocks.0" + table) == floats(files, "transformer_blocks.1" + table));
  // Ours: channel, row, column of a patch; theirs: row, column, channel.
  const auto bias = floats(files, "proj_out_2.bias");
  const auto head = static_cast<float>(s.model.first_of("head.bias"));
  CHECK(bias ==
        std::vector<float>{head, head + 4, head + 1, head + 5, head + 2, head + 6, head + 3, head + 7});
  const auto config =
      boost::json::parse(storage::read_file(s.out / "transformer" / "config.json")).as_object();
  CHECK(config.at("_class_name") == "DiTTransformer2DModel");
  CHECK(config.at("in_channels") == 2);
  CHECK(config.at("sample_size") == 4);
  CHECK(config.at("num_embeds_ada_norm") == 3);
  CHECK(says(storage::read_file(s.out / "transformer" / "perdura_dit.py"), "def load("));
}

TEST_CASE("weights in diffusers' names come back as they went out") {
  saved s;
  REQUIRE(s.write(format::diffusers));
  const auto in = import_weights(s.import_from(s.out));
  REQUIRE_MESSAGE(in, in.failure().message);
  CHECK(in->as == format::diffusers);
  CHECK_FALSE(in->has_fixed_positions);
  CHECK(s.is_as_saved(chunk_kind::parameters));
}

TEST_CASE("where diffusers' weights bring no positions its fixed ones are taken") {
  saved s;
  REQUIRE(s.write(format::diffusers));
  const auto file = s.folder.path() / "theirs.safetensors";
  rewrite(s.out / "transformer", file, {{positions_name, {}}});
  const auto in = import_weights(s.import_from(file));
  REQUIRE_MESSAGE(in, in.failure().message);
  CHECK(in->has_fixed_positions);
  const auto all = s.array(chunk_kind::parameters);
  // Token 1 is row 0, column 1: sines and cosines of the column, then of the row.
  const auto* token = all.data() + s.model.first_of("position") + 8;
  CHECK(token[0] == static_cast<float>(std::sin(1.0)));
  CHECK(token[1] == static_cast<float>(std::sin(0.01)));
  CHECK(token[2] == static_cast<float>(std::cos(1.0)));
  CHECK(token[4] == 0.0F);
  CHECK(token[6] == 1.0F);
}

TEST_CASE("all tensors that do not fit are named at once, and no checkpoint is made") {
  saved s;
  REQUIRE(s.write(format::plain));
  const auto file = s.folder.path() / "other.safetensors";
  rewrite(s.out, file, {{"position", {}}, {"head.bias", {1, 2, 3}}, {"surplus", {1}}, {"time.2.bias", {}}});
  const auto in = import_weights(s.import_from(file));
  REQUIRE_FALSE(in);
  CHECK(in.failure().code == errc::invalid_argument);
  for (const auto* part : {"4 tensors", "missing: position [4, 8]", "missing: time.2.bias [8]",
                           "wrong shape: head.bias is [3], the model's is [8]", "unknown: surplus"})
    CHECK_MESSAGE(says(in.failure().message, part), in.failure().message);
  CHECK(storage::list_checkpoints(storage::object_folder(s.store), "")->empty());
}

TEST_CASE("copies of an embedding that differ are refused by name") {
  saved s;
  REQUIRE(s.write(format::diffusers));
  const std::string name = "transformer_blocks.1.norm1.emb.timestep_embedder.linear_2.bias";
  const auto file = s.folder.path() / "other.safetensors";
  rewrite(s.out / "transformer", file, {{name, std::vector<float>(8, 1.0F)}});
  const auto in = import_weights(s.import_from(file));
  REQUIRE_FALSE(in);
  CHECK(in.failure().code == errc::corrupt);
  CHECK(says(in.failure().message, name));
}

TEST_CASE("weights that are not finite are refused by name") {
  saved s;
  REQUIRE(s.write(format::plain));
  const auto file = s.folder.path() / "other.safetensors";
  std::vector<float> bias(8, 0.0F);
  bias[5] = std::numeric_limits<float>::infinity();
  rewrite(s.out, file, {{"head.bias", bias}});
  const auto in = import_weights(s.import_from(file));
  REQUIRE_FALSE(in);
  CHECK(says(in.failure().message, "head.bias"));
  CHECK(storage::list_checkpoints(storage::object_folder(s.store), "")->empty());
}

TEST_CASE("a second import as the same job is refused") {
  saved s;
  REQUIRE(s.write(format::plain));
  REQUIRE(import_weights(s.import_from(s.out)));
  CHECK(import_weights(s.import_from(s.out)).failure().code == errc::already_exists);
}

TEST_CASE("an export never overwrites, and a damaged checkpoint leaves no file") {
  saved s;
  REQUIRE(s.write(format::plain));
  CHECK(s.write(format::plain).failure().code == errc::already_exists);
  const auto pack = s.store / "packs" / s.contents.chunks.front().record.pack;
  auto bytes = storage::read_file(pack);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  storage::write_file(pack, bytes);
  std::size_t broken = 0;
  for (const auto kind : storage::all_kinds) {
    fs::remove(s.out / "model.safetensors");
    const auto done = s.write(format::plain, kind);
    if (!done) ++broken;
    CHECK(fs::exists(s.out / "model.safetensors") == done.has_value());
  }
  CHECK(broken >= 1);
}

TEST_CASE("a checkpoint that does not name its tensors is not exported") {
  saved s;
  s.contents.tensors.clear();
  CHECK(says(s.write(format::plain).failure().message, "what its tensors are called"));
}

TEST_CASE("a model without counterpart in diffusers is exported plain only") {
  saved s;
  s.model.config.mlp_ratio = 2;
  const auto refused = s.write(format::diffusers);
  REQUIRE_FALSE(refused);
  CHECK(says(refused.failure().message, "mlp_ratio"));
  CHECK(s.write(format::plain));
  s.model.config.mlp_ratio = 4;
  s.contents.tensors[0].name = "unheard-of";
  CHECK_FALSE(s.write(format::diffusers));
}

TEST_CASE("weights of 16 and 64 bits are converted exactly") {
  temporary_folder folder;
  saved s;
  REQUIRE(s.write(format::plain));
  const auto in = st::tensor_folder::open(s.out).value();
  st::header h;
  for (const auto& name : in.names()) h.tensors.push_back({name, st::dtype::f64, in.find(name)->shape, 0, 0});
  const auto file = folder.path() / "wide.safetensors";
  auto out = st::writer::create(file, h).value();
  for (const auto& name : in.names()) {
    const auto values = floats(in, name);
    const std::vector<double> wide(values.begin(), values.end());
    out.append(name, std::as_bytes(std::span(wide))).value();
  }
  out.finish().value();
  REQUIRE(import_weights(s.import_from(file)));
  CHECK(s.is_as_saved(chunk_kind::parameters));

  CHECK(float_of_bf16(0x3f80) == 1.0F);
  CHECK(float_of_f16(0x3c00) == 1.0F);
  CHECK(float_of_f16(0xc000) == -2.0F);
  CHECK(float_of_f16(0x7bff) == 65504.0F);
  CHECK(float_of_f16(0x0001) == std::ldexp(1.0F, -24));
  CHECK(float_of_f16(0x8001) == -std::ldexp(1.0F, -24));
  CHECK(float_of_f16(0x0400) == std::ldexp(1.0F, -14));
  CHECK(std::signbit(float_of_f16(0x8000)));
  CHECK(std::isinf(float_of_f16(0xfc00)));
  CHECK(std::isnan(float_of_f16(0x7e00)));
}
