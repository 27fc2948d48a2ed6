// Finished pictures: 8 bits a channel, grey or RGB, and their PNG.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "actors/base/result.hpp"
#include "worker/model/denoiser.hpp"

namespace perdura::worker {

struct image {
  std::int64_t width{};
  std::int64_t height{};
  std::int64_t channels{};           // 1: grey, 3: RGB
  std::vector<std::uint8_t> pixels;  // row by row, a pixel's channels side by side
  bool operator==(const image&) const = default;
};

// values: [channels, height, width], -1 is black and 1 is white; what lies beyond is cut off.
image to_image(const image_shape& shape, std::span<const float> values);

// All of one size and kind, row by row, `columns` a row, each pixel enlarged to zoom x zoom, with white gaps
// between.
struct grid_options {
  std::int64_t columns = 1;
  std::int64_t zoom = 1;
  std::int64_t gap = 2;
};
image grid_of(std::span<const image> images, const grid_options& options);

// Errors: invalid_argument for a number of channels that PNG does not have; io.
result<std::vector<std::byte>> encode_png(const image& picture);
// Replaces the file whole or not at all.
result<void> write_png(const image& picture, const std::filesystem::path& path);

}  // namespace perdura::worker
