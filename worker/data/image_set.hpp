// A labelled set of images in memory, as bytes. Which sample is used when is worker/data/sampling.hpp's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/base/config.hpp"
#include "actors/base/result.hpp"

namespace perdura::worker {

struct image_set {
  std::uint32_t channels = 1;
  std::uint32_t height{};
  std::uint32_t width{};
  std::uint32_t classes{};
  std::vector<std::uint8_t> pixels;  // [size, channels, height, width], 0..255
  std::vector<std::uint8_t> labels;  // [size], below `classes`

  std::size_t size() const { return labels.size(); }
  std::size_t image_size() const { return std::size_t{channels} * height * width; }
  std::span<const std::uint8_t> image(std::size_t sample) const {
    return std::span(pixels).subspan(sample * image_size(), image_size());
  }
};

// The training set that the job names. Errors name the file and what to do: not_found, corrupt, io, and
// invalid_argument for an unknown kind.
result<image_set> load_images(const data_config& config);

// An IDX file (yann.lecun.com/exdb/mnist) of unsigned bytes, gzipped or not.
struct idx_array {
  std::vector<std::uint32_t> shape;
  std::vector<std::uint8_t> values;
};
inline constexpr std::uint64_t idx_bytes_max = std::uint64_t{4} << 30;
result<idx_array> read_idx(const std::string& path);

}  // namespace perdura::worker
