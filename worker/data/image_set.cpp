#include "worker/data/image_set.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <zlib.h>

namespace perdura::worker {
namespace {

constexpr const char* fashion_mnist_hint =
    "; install it with `apt-get install dataset-fashion-mnist`, or set data.folder to where it is";
constexpr std::uint32_t fashion_mnist_classes = 10;
constexpr unsigned read_piece_max = 1U << 30;  // zlib counts in int

using gz_handle = std::unique_ptr<gzFile_s, int (*)(gzFile)>;

error failed(errc code, const std::string& path, const std::string& why) {
  return {code, "reading " + path + ": " + why};
}

result<void> read_exactly(gzFile file, const std::string& path, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    const auto piece = static_cast<unsigned>(std::min<std::size_t>(out.size(), read_piece_max));
    const int got = gzread(file, out.data(), piece);
    if (got < 0) {
      int code = 0;
      return failed(errc::corrupt, path, std::string("not a sound gzip file: ") + gzerror(file, &code));
    }
    if (got == 0) return failed(errc::corrupt, path, "the file ends too early; fetch it anew");
    out = out.subspan(static_cast<std::size_t>(got));
  }
  return {};
}

std::uint32_t big_endian(const std::uint8_t* p) {
  return std::uint32_t{p[0]} << 24 | std::uint32_t{p[1]} << 16 | std::uint32_t{p[2]} << 8 |
         std::uint32_t{p[3]};
}

result<image_set> load_fashion_mnist(const std::string& folder) {
  const std::string images_path = folder + "/train-images-idx3-ubyte.gz";
  const std::string labels_path = folder + "/train-labels-idx1-ubyte.gz";
  const auto explain = [](error e) {
    if (e.code == errc::not_found) e.message += fashion_mnist_hint;
    return e;
  };
  auto images = read_idx(images_path);
  if (!images) return explain(images.failure());
  auto labels = read_idx(labels_path);
  if (!labels) return explain(labels.failure());
  if (images->shape.size() != 3 || images->values.empty())
    return failed(errc::corrupt, images_path, "expected a non-empty array of 3 dimensions");
  if (labels->shape.size() != 1 || labels->shape[0] != images->shape[0])
    return failed(errc::corrupt, labels_path,
                  "expected one label for each of the " + std::to_string(images->shape[0]) + " images");
  if (std::ranges::any_of(labels->values, [](auto label) { return label >= fashion_mnist_classes; }))
    return failed(errc::corrupt, labels_path, "a label is not in 0..9");
  return image_set{.channels = 1,
                   .height = images->shape[1],
                   .width = images->shape[2],
                   .classes = fashion_mnist_classes,
                   .pixels = std::move(images->values),
                   .labels = std::move(labels->values)};
}

}  // namespace

result<idx_array> read_idx(const std::string& path) {
  errno = 0;
  const gz_handle file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) {
    const auto code = errno == ENOENT ? errc::not_found : errc::io;
    return failed(code, path, std::strerror(errno != 0 ? errno : ENOMEM));
  }
  gzbuffer(file.get(), 1U << 17);

  std::uint8_t head[4];
  if (auto read = read_exactly(file.get(), path, head); !read) return read.failure();
  constexpr std::uint8_t unsigned_bytes = 0x08;
  if (head[0] != 0 || head[1] != 0 || head[2] != unsigned_bytes || head[3] == 0 || head[3] > 4)
    return failed(errc::corrupt, path, "not an IDX file of unsigned bytes in 1 to 4 dimensions");

  idx_array array;
  std::uint64_t size = 1;
  for (std::uint8_t i = 0; i < head[3]; ++i) {
    std::uint8_t dimension[4];
    if (auto read = read_exactly(file.get(), path, dimension); !read) return read.failure();
    array.shape.push_back(big_endian(dimension));
    // Neither factor is above 2^32, so the product cannot wrap before it is looked at.
    size *= array.shape.back();
    if (size > idx_bytes_max)
      return failed(errc::exhausted, path,
                    "its shape asks for more than " + std::to_string(idx_bytes_max) + " bytes");
  }
  array.values.resize(size);
  if (auto read = read_exactly(file.get(), path, array.values); !read) return read.failure();
  std::uint8_t more = 0;
  if (gzread(file.get(), &more, 1) != 0)
    return failed(errc::corrupt, path, "bytes follow the end of the array");
  return array;
}

result<image_set> load_images(const data_config& config) {
  if (config.kind == "fashion-mnist") return load_fashion_mnist(config.folder);
  return error{errc::invalid_argument, "data.kind is \"" + config.kind + "\"; there is: fashion-mnist"};
}

}  // namespace perdura::worker
