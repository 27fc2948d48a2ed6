#include "worker/once.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <boost/json.hpp>
#include <iostream>
#include <limits>
#include <memory>
#include <sstream>

#include "actors/runtime/config_file.hpp"
#include "storage/object_folder.hpp"
#include "tests/unit/storage_fixture.hpp"
#include "worker/data/image_set.hpp"
#include "worker/generate.hpp"
#include "worker/model/denoiser.hpp"
#include "worker/trainer/pin.hpp"
#include "worker/trainer/state.hpp"
#include "worker/trainer/trainer.hpp"

using namespace perdura;
using namespace perdura::worker;
namespace fs = std::filesystem;
using storage::chunk_kind;

namespace {

const std::string job_text = R"(name = "tiny"
[model]
width = 32
depth = 1
heads = 2
patch = 7
[data]
folder = "/nowhere"
[batch]
size = 32
slots = 8
[optimizer]
learning_rate = 1e-2
[sample]
steps = 4
)";

// Fashion-MNIST's shape, smooth blobs for pictures.
image_set tiny_images() {
  image_set data{.channels = 1, .height = 28, .width = 28, .classes = 10, .pixels = {}, .labels = {}};
  for (std::uint32_t i = 0; i < 50; ++i) {
    data.labels.push_back(static_cast<std::uint8_t>(i % 10));
    for (std::uint32_t y = 0; y < 28; ++y)
      for (std::uint32_t x = 0; x < 28; ++x)
        data.pixels.push_back(static_cast<std::uint8_t>(x * (i % 10) + y * (i % 3)));
  }
  return data;
}

// A job that is trained by one process and saved when the test says so.
class tiny_job {
 public:
  tiny_job() {
    pin_numerics();
    const auto job = runtime::parse_job(job_text, "test");
    trainer_ = *assemble_trainer(*job, tiny_images(), *make_denoiser(*job));
    trainer_->initialise();
  }

  void train() {
    block_collector all(trainer_->tiles().size());
    const step_number n = step_ + 1;
    const auto sum = trainer_->compute_block(n, {0, 8}, all);
    step_outcome outcome;
    outcome.clip_scale = 1.0F;
    outcome.learning_rate = 1e-2F;
    outcome.optimizer_time = n.value;
    for (std::uint32_t i = 0; i < trainer_->tiles().size(); ++i) {
      const std::vector<tile_partial> whole{{{0, 8}, sum->loss, all.tiles[i]}};
      trainer_->apply(tile_id(i), trainer_->reduce(tile_id(i), whole).gradient, outcome);
    }
    step_ = n;
  }

  void spoil() {
    auto state = trainer_->copy_tile(tile_id(0));
    std::vector<float> values(state.size() / sizeof(float), std::numeric_limits<float>::quiet_NaN());
    trainer_->install_tile(tile_id(0), std::as_bytes(std::span(values)));
  }

  storage::manifest save(const fs::path& store, const std::string& name,
                         std::uint64_t created_unix_ms) const {
    storage::manifest m = storage::empty_manifest({name, timeline_number(0), step_});
    m.job_text = job_text;
    m.created_unix_ms = created_unix_ms;
    m.tiles = trainer_->tiles();
    storage::checkpoint_writer writer(store, {0x1111, created_unix_ms},
                                      {.packs = {.sync = [](int) { return 0; }}});
    writer.begin(m.key());
    for (std::uint32_t i = 0; i < m.tiles.size(); ++i) {
      const auto chunks = writer.append_tile(tile_id(i), trainer_->copy_tile(tile_id(i)).bytes());
      m.chunks.insert(m.chunks.end(), chunks->begin(), chunks->end());
      for (const auto& c : *chunks)
        for (auto& base : writer.bases_of(c.record)) m.bases.push_back(std::move(base));
    }
    writer.finish().value();
    storage::sort_chunks(m);
    storage::object_folder(store).put_if_absent(storage::manifest_object(m.key()), encode(m)).value();
    return m;
  }

 private:
  std::unique_ptr<trainer> trainer_;
  step_number step_;
};

// Three checkpoints in a data folder: an older job's, and two of `tiny-2`.
struct some_checkpoints {
  storage::temporary_folder data;
  fs::path store = data.path() / "store";
  storage::manifest older, first, last;

  some_checkpoints() {
    tiny_job job;
    older = job.save(store, "tiny-1", 1000);
    job.train();
    first = job.save(store, "tiny-2", 2000);
    for (int i = 0; i < 3; ++i) job.train();
    last = job.save(store, "tiny-2", 3000);
  }

  fs::path manifest_file(const storage::manifest& m) const {
    return store / storage::manifest_object(m.key());
  }
  generate_options options(std::vector<std::int64_t> classes = {7}) const {
    generate_options o;
    o.from.path = data.path();
    o.classes = std::move(classes);
    o.zoom = 1;
    o.file = data.path() / "picture.png";
    return o;
  }
};

generated made(const generate_options& o) {
  auto g = generate(o);
  REQUIRE_MESSAGE(g, (g ? "" : g.failure().message));
  return *std::move(g);
}

error refused(const generate_options& o) {
  const auto g = generate(o);
  REQUIRE_FALSE(g);
  CHECK_FALSE(fs::exists(o.file));
  return g.failure();
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// What a command printed, and how it ended.
struct run_result {
  int code;
  std::string out, err;
};

run_result run(int (*command)(int, char**), std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  std::ostringstream out, err;
  auto* const was_out = std::cout.rdbuf(out.rdbuf());
  auto* const was_err = std::cerr.rdbuf(err.rdbuf());
  const int code = command(static_cast<int>(arguments.size()), arguments.data());
  std::cout.rdbuf(was_out);
  std::cerr.rdbuf(was_err);
  return {code, out.str(), err.str()};
}

}  // namespace

TEST_CASE("a grid has the same bytes for any number of threads") {
  const some_checkpoints c;
  auto o = c.options({});
  o.per_class = 2;
  o.threads = 1;
  const auto alone = made(o);
  const auto bytes = storage::read_file(o.file);
  CHECK(alone.threads == 1);
  CHECK(alone.classes.size() == 10);
  CHECK(alone.picture.width == 2 * 28 + 2);
  CHECK(alone.picture.height == 10 * 30 - 2);
  for (const std::uint32_t threads : {2, 5}) {
    o.threads = threads;
    CHECK(made(o).threads == threads);
    CHECK(storage::read_file(o.file) == bytes);
  }
  o.seed = 2;
  made(o);
  CHECK(storage::read_file(o.file) != bytes);
}

TEST_CASE("an image does not depend on those that are drawn with it") {
  const some_checkpoints c;
  auto o = c.options({3, 7});
  o.per_class = 5;
  const image grid = made(o).picture;
  o.classes = {7};
  o.per_class = 1;
  o.seed += 4;
  const image alone = made(o).picture;
  std::vector<std::uint8_t> cell;
  for (std::int64_t y = 30; y < 58; ++y)
    for (std::int64_t x = 4 * 30; x < 4 * 30 + 28; ++x)
      cell.push_back(grid.pixels[static_cast<std::size_t>(y * grid.width + x)]);
  CHECK(cell == alone.pixels);
}

TEST_CASE("the average of the weights is drawn from, and the raw ones where asked for") {
  const some_checkpoints c;
  auto o = c.options();
  const image averaged = made(o).picture;
  o.raw_weights = true;
  CHECK_FALSE(made(o).picture == averaged);
}

TEST_CASE("many images of one class become a square") {
  const some_checkpoints c;
  auto o = c.options();
  o.per_class = 9;
  o.steps = 1;
  const auto picture = made(o).picture;
  CHECK(picture.width == 3 * 30 - 2);
  CHECK(picture.height == 3 * 30 - 2);
}

TEST_CASE("the newest checkpoint of the newest job is taken, or the one that is named") {
  const some_checkpoints c;
  auto o = c.options();
  o.steps = 1;
  CHECK(made(o).checkpoint == c.last.key());
  o.from.path = c.store;
  CHECK(made(o).checkpoint == c.last.key());
  o.from.step = step_number(1);
  CHECK(made(o).checkpoint == c.first.key());
  o.from = {c.store, "tiny-1", {}};
  CHECK(made(o).checkpoint == c.older.key());
  o.from = {c.manifest_file(c.first), "", {}};
  CHECK(made(o).checkpoint == c.first.key());
}

TEST_CASE("where there is no such checkpoint, the error says what there is") {
  const some_checkpoints c;
  auto o = c.options();
  o.from.path = c.data.path() / "elsewhere";
  CHECK(contains(refused(o).message, "there is no " + o.from.path.string()));
  fs::create_directories(o.from.path / "holiday");
  CHECK(refused(o).code == errc::not_found);
  CHECK(contains(refused(o).message, "it holds holiday"));
  fs::create_directories(o.from.path / "store" / "terms");
  CHECK(contains(refused(o).message, "no checkpoint yet"));
  o.from = {c.store, "tiny-3", {}};
  CHECK(contains(refused(o).message, "there are those of tiny-1, tiny-2"));
  o.from = {c.store, "tiny-2", step_number(3)};
  CHECK(contains(refused(o).message, "no checkpoint of step 3"));
  CHECK(contains(refused(o).message, "it has step 4, 1"));
  o.from = {c.store / "packs" / c.last.chunks[0].record.pack, "", {}};
  CHECK(contains(refused(o).message, "STORE/manifests/JOB/TIMELINE-STEP.json"));
  o.from = {c.manifest_file(c.last), "", step_number(1)};
  CHECK(contains(refused(o).message, "one checkpoint already"));
}

TEST_CASE("what the model or the sampler does not have is refused with what is allowed") {
  const some_checkpoints c;
  for (const std::int64_t label : {-1, 11}) {
    const auto why = refused(c.options({7, label}));
    CHECK(why.code == errc::invalid_argument);
    CHECK(contains(why.message, "class = " + std::to_string(label) + ": must be in 0..9"));
  }
  auto o = c.options();
  o.guidance = -1;
  CHECK(contains(refused(o).message, "guidance"));
  o = c.options();
  o.solver = "magic";
  CHECK(contains(refused(o).message, "euler"));
  o = c.options({});
  o.per_class = images_max;
  CHECK(contains(refused(o).message, "must be 1.." + std::to_string(images_max)));
  o.per_class = 1000;
  o.zoom = 64;
  CHECK(contains(refused(o).message, "too large"));
  o = c.options();
  o.file = c.data.path() / "nowhere" / "picture.png";
  CHECK(contains(refused(o).message, "there is no folder"));
}

TEST_CASE("a damaged checkpoint is refused with its tile, its file and the steps that there are otherwise") {
  const some_checkpoints c;
  const auto& record = c.last.find(tile_id(1), chunk_kind::ema)->record;
  const auto pack = storage::packs_folder(c.store) / record.pack;
  auto bytes = storage::read_file(pack);
  bytes[record.offset + storage::record_header_bytes] ^= 1;
  storage::write_file(pack, bytes);
  auto o = c.options();
  const auto why = refused(o);
  CHECK(why.code == errc::corrupt);
  CHECK(contains(why.message, "tile 1 ema"));
  CHECK(contains(why.message, record.pack));
  CHECK(contains(why.message, "--step takes another one: 1"));
  o.raw_weights = true;
  CHECK(generate(o).has_value());

  fs::remove(pack);
  fs::remove(o.file);
  CHECK(contains(refused(o).message, record.pack));
  storage::write_file(c.manifest_file(c.last), "{}");
  CHECK(contains(refused(o).message, c.manifest_file(c.last).string()));
}

TEST_CASE("a checkpoint of another model's size is refused") {
  const some_checkpoints c;
  auto m = c.last;
  const std::string width = "width = 32";
  m.job_text.replace(m.job_text.find(width), width.size(), "width = 48");
  fs::remove(c.manifest_file(m));
  storage::write_file(c.manifest_file(m), encode(m));
  CHECK(refused(c.options()).code == errc::version_mismatch);
}

TEST_CASE("weights that are not finite make no picture") {
  const storage::temporary_folder folder;
  tiny_job job;
  job.spoil();
  job.save(folder.path(), "tiny-1", 1000);
  generate_options o;
  o.from.path = folder.path();
  o.per_class = 3;
  o.file = folder.path() / "picture.png";
  CHECK(contains(refused(o).message, "not finite"));
  CHECK(contains(refused(o).message, "class 0 with seed 1"));
}

TEST_CASE("generate ends with 0, 1 or 2, and says what it wrote") {
  const some_checkpoints c;
  const auto file = (c.data.path() / "p.png").string();
  const std::vector<std::string> words{"--once", "--checkpoint", c.data.path().string(), "-o", file};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), words.begin(), words.end());
    return run(run_once, more);
  };
  auto ended = with({"--grid", "1", "--seed", "5", "--steps", "2"});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, file + ": 10 images of classes 0, 1"));
  CHECK(contains(ended.out, "seed 5"));
  CHECK(contains(ended.out, "tiny-2 step 4"));
  CHECK(ended.err.empty());

  ended = with({"--class", "7", "--json"});
  CHECK(ended.code == 0);
  const auto told = boost::json::parse(ended.out).as_object();
  CHECK(told.at("step").as_int64() == 4);
  CHECK(told.at("steps").as_int64() == 4);
  CHECK(told.at("guidance").as_double() == 2.0);
  CHECK(told.at("width").as_int64() == 28 * 4);

  ended = with({"--class", "12"});
  CHECK(ended.code == 1);
  CHECK(ended.out.empty());
  CHECK(contains(ended.err, "perdura generate: class = 12"));

  CHECK(with({}).code == 2);
  CHECK(with({"--class", "7", "--grid", "2"}).code == 2);
  CHECK(with({"--grid", "0"}).code == 2);
  CHECK(with({"--colour", "red"}).code == 2);
  CHECK(with({"--help"}).code == 0);
}

TEST_CASE("describe tells the tiles and parameters of a job, and what a step sends") {
  const storage::temporary_folder folder;
  const auto file = (folder.path() / "job.toml").string();
  storage::write_file(file, job_text);
  auto ended = run(run_describe, {"--describe", file, "--json", "--workers", "2"});
  REQUIRE(ended.code == 0);
  const auto told = boost::json::parse(ended.out).as_object();
  const auto count = told.at("parameter_count").as_int64();
  std::int64_t in_tiles = 0, in_parameters = 0;
  for (const auto& t : told.at("tiles").as_array()) in_tiles += t.at("size").as_int64();
  for (const auto& p : told.at("parameters").as_array()) {
    in_parameters += p.at("count").as_int64();
    CHECK(p.at("tiles").as_array()[0].as_int64() < p.at("tiles").as_array()[1].as_int64());
  }
  CHECK(in_tiles == count);
  CHECK(in_parameters == count);
  CHECK(told.at("state_bytes").as_int64() == 16 * count);
  CHECK(told.at("wire_bytes_per_step").as_int64() == 2 * 4 * count);

  ended = run(run_describe, {"--describe", file});
  CHECK(ended.code == 0);
  CHECK(contains(ended.out, std::to_string(count) + " parameters"));
  ended = run(run_describe, {"--describe", file, "--measure"});
  CHECK(ended.code == 1);
  CHECK(contains(ended.err, "/nowhere"));
  CHECK(run(run_describe, {"--describe", file + "x"}).code == 1);
  CHECK(run(run_describe, {"--describe"}).code == 2);
}
