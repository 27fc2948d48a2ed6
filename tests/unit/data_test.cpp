#include <doctest/doctest.h>

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "worker/data/image_set.hpp"
#include "worker/data/sampling.hpp"

using namespace perdura;
using namespace perdura::worker;
namespace fs = std::filesystem;

namespace {

// A folder that goes with the test.
struct temporary_folder {
  fs::path path;
  temporary_folder() {
    std::string name = (fs::temp_directory_path() / "perdura-data-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~temporary_folder() { fs::remove_all(path); }
};

void write_gz(const fs::path& path, const std::vector<std::uint8_t>& bytes) {
  gzFile file = gzopen(path.c_str(), "wb");
  REQUIRE(file != nullptr);
  gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  REQUIRE(gzclose(file) == Z_OK);
}

std::vector<std::uint8_t> idx(std::vector<std::uint32_t> shape, std::vector<std::uint8_t> values) {
  std::vector<std::uint8_t> bytes{0, 0, 8, static_cast<std::uint8_t>(shape.size())};
  for (auto n : shape)
    for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<std::uint8_t>(n >> shift));
  bytes.insert(bytes.end(), values.begin(), values.end());
  return bytes;
}

std::vector<std::uint8_t> counting(std::size_t count) {
  std::vector<std::uint8_t> values(count);
  std::iota(values.begin(), values.end(), std::uint8_t{0});
  return values;
}

// Three images of 2 x 4 with labels 5, 0 and 9.
struct tiny_set {
  temporary_folder folder;
  data_config config;
  fs::path images = folder.path / "train-images-idx3-ubyte.gz";
  fs::path labels = folder.path / "train-labels-idx1-ubyte.gz";
  tiny_set() {
    config.folder = folder.path.string();
    write_gz(images, idx({3, 2, 4}, counting(24)));
    write_gz(labels, idx({3}, {5, 0, 9}));
  }
};

bool mentions(const error& e, const std::string& what) { return e.message.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("images and labels are read from gzipped IDX files") {
  tiny_set set;
  const auto images = load_images(set.config);
  REQUIRE(images);
  CHECK(images->size() == 3);
  CHECK(images->height == 2);
  CHECK(images->width == 4);
  CHECK(images->classes == 10);
  CHECK(images->labels == std::vector<std::uint8_t>{5, 0, 9});
  CHECK(images->image(2).front() == 16);
  CHECK(images->image(2).size() == 8);
}

TEST_CASE("a missing data set is reported with the file and the command that installs it") {
  data_config config;
  config.folder = "/nonexistent/folder";
  const auto images = load_images(config);
  REQUIRE_FALSE(images);
  CHECK(images.failure().code == errc::not_found);
  CHECK(mentions(images.failure(), "/nonexistent/folder/train-images-idx3-ubyte.gz"));
  CHECK(mentions(images.failure(), "apt-get install dataset-fashion-mnist"));
}

TEST_CASE("an unknown kind of data is refused with the kinds that exist") {
  data_config config;
  config.kind = "imagenet";
  const auto images = load_images(config);
  REQUIRE_FALSE(images);
  CHECK(images.failure().code == errc::invalid_argument);
  CHECK(mentions(images.failure(), "imagenet"));
  CHECK(mentions(images.failure(), "fashion-mnist"));
}

TEST_CASE("damaged files are refused, each with its name") {
  tiny_set set;
  const auto expect_corrupt = [&](const fs::path& path) {
    const auto images = load_images(set.config);
    REQUIRE_FALSE(images);
    CHECK(images.failure().code == errc::corrupt);
    CHECK(mentions(images.failure(), path.string()));
  };
  SUBCASE("a truncated gzip stream") {
    fs::resize_file(set.images, fs::file_size(set.images) / 2);
    expect_corrupt(set.images);
  }
  SUBCASE("fewer bytes than the shape says") {
    write_gz(set.images, idx({3, 2, 4}, counting(23)));
    expect_corrupt(set.images);
  }
  SUBCASE("more bytes than the shape says") {
    write_gz(set.images, idx({3, 2, 4}, counting(25)));
    expect_corrupt(set.images);
  }
  SUBCASE("something that is no IDX file") {
    write_gz(set.images, counting(100));
    expect_corrupt(set.images);
  }
  SUBCASE("an empty file") {
    write_gz(set.images, {});
    expect_corrupt(set.images);
  }
  SUBCASE("no images at all") {
    write_gz(set.images, idx({0, 2, 4}, {}));
    expect_corrupt(set.images);
  }
  SUBCASE("labels for another number of images") {
    write_gz(set.labels, idx({2}, {1, 2}));
    expect_corrupt(set.labels);
  }
  SUBCASE("a label beyond the classes") {
    write_gz(set.labels, idx({3}, {1, 2, 10}));
    expect_corrupt(set.labels);
  }
}

TEST_CASE("a shape beyond the limit is refused before anything is allocated") {
  temporary_folder folder;
  const auto path = folder.path / "huge.gz";
  write_gz(path, idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, {}));
  const auto array = read_idx(path.string());
  REQUIRE_FALSE(array);
  CHECK(array.failure().code == errc::exhausted);
}

TEST_CASE("each epoch's order is a permutation of the data set") {
  for (std::uint64_t count : {1, 2, 3, 4, 5, 16, 17, 1000, 4097, 60000})
    for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
      std::vector<bool> seen(count);
      for (std::uint64_t i = 0; i < count; ++i) {
        const auto sample = shuffled(42, epoch, i, count);
        REQUIRE(sample < count);
        REQUIRE_FALSE(seen[sample]);
        seen[sample] = true;
      }
    }
}

TEST_CASE("seeds and epochs have orders of their own that look random") {
  constexpr std::uint64_t count = 1000;
  std::uint64_t fixed_points = 0;
  std::uint64_t same_as_next_epoch = 0;
  std::uint64_t same_as_next_seed = 0;
  double correlation = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    const auto sample = shuffled(1, 0, i, count);
    fixed_points += sample == i;
    same_as_next_epoch += sample == shuffled(1, 1, i, count);
    same_as_next_seed += sample == shuffled(2, 0, i, count);
    correlation += (static_cast<double>(i) - 499.5) * (static_cast<double>(sample) - 499.5);
  }
  // A random permutation has one fixed point on average.
  CHECK(fixed_points < 10);
  CHECK(same_as_next_epoch < 10);
  CHECK(same_as_next_seed < 10);
  CHECK(std::fabs(correlation / 1000.0 / (1000.0 * 1000.0 / 12.0)) < 0.12);
}

TEST_CASE("steps walk through the data set once an epoch, across the batches' borders") {
  const sampling draws{.seed = 3, .data_size = 100, .batch_size = 32, .label_drop = 0.0};
  std::vector<int> used(100);
  for (std::uint64_t n = 1; n <= 25; ++n)
    for (std::uint32_t i = 0; i < 32; ++i) ++used[draws.row(step_number(n), i).sample];
  CHECK(std::ranges::all_of(used, [](int times) { return times == 8; }));
}

TEST_CASE("labels are dropped at the rate asked for") {
  const auto dropped = [](double rate) {
    const sampling draws{.seed = 3, .data_size = 1000, .batch_size = 100, .label_drop = rate};
    int count = 0;
    for (std::uint64_t n = 1; n <= 100; ++n)
      for (std::uint32_t i = 0; i < 100; ++i) count += draws.row(step_number(n), i).label_dropped;
    return count;
  };
  CHECK(dropped(0.0) == 0);
  CHECK(dropped(1.0) == 10000);
  CHECK(dropped(0.1) == doctest::Approx(1000).epsilon(0.12));
}

TEST_CASE("every position of every step has a time of its own") {
  const sampling draws{.seed = 3, .data_size = 1000, .batch_size = 16, .label_drop = 0.1};
  std::set<float> times;
  for (std::uint64_t n = 1; n <= 4; ++n)
    for (std::uint32_t i = 0; i < 16; ++i) times.insert(draws.row(step_number(n), i).time);
  CHECK(times.size() == 64);
}
