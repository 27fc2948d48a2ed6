#include "worker/sampler/image.hpp"

#include <png.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <string>
#include <system_error>

namespace perdura::worker {

image to_image(const image_shape& shape, std::span<const float> values) {
  PERDURA_CHECK(static_cast<std::int64_t>(values.size()) == shape.count(),
                "a value for each pixel and channel");
  image to{shape.width, shape.height, shape.channels, std::vector<std::uint8_t>(values.size())};
  const std::int64_t area = shape.height * shape.width;
  for (std::int64_t i = 0; i < area; ++i) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const float level =
          std::clamp((values[static_cast<std::size_t>(c * area + i)] + 1.0F) * 127.5F, 0.0F, 255.0F);
      to.pixels[static_cast<std::size_t>(i * shape.channels + c)] = static_cast<std::uint8_t>(level + 0.5F);
    }
  }
  return to;
}

image grid_of(std::span<const image> images, const grid_options& options) {
  PERDURA_CHECK(!images.empty() && options.columns > 0 && options.zoom > 0, "a grid of at least one image");
  const image& first = images.front();
  const std::int64_t rows =
      (static_cast<std::int64_t>(images.size()) + options.columns - 1) / options.columns;
  const std::int64_t cell_width = first.width * options.zoom + options.gap;
  const std::int64_t cell_height = first.height * options.zoom + options.gap;
  image to{options.columns * cell_width - options.gap, rows * cell_height - options.gap, first.channels, {}};
  to.pixels.assign(static_cast<std::size_t>(to.width * to.height * to.channels), 255);
  for (std::size_t n = 0; n < images.size(); ++n) {
    const image& from = images[n];
    PERDURA_CHECK(from.width == first.width && from.height == first.height && from.channels == first.channels,
                  "images of a grid are of one size and kind");
    const std::int64_t left = static_cast<std::int64_t>(n) % options.columns * cell_width;
    const std::int64_t top = static_cast<std::int64_t>(n) / options.columns * cell_height;
    for (std::int64_t y = 0; y < from.height * options.zoom; ++y) {
      for (std::int64_t x = 0; x < from.width * options.zoom; ++x) {
        const std::int64_t source = (y / options.zoom * from.width + x / options.zoom) * from.channels;
        const std::int64_t target = ((top + y) * to.width + left + x) * to.channels;
        std::copy_n(from.pixels.begin() + source, from.channels, to.pixels.begin() + target);
      }
    }
  }
  return to;
}

result<std::vector<std::byte>> encode_png(const image& picture) {
  if (picture.channels != 1 && picture.channels != 3) {
    return error{errc::invalid_argument, "cannot encode an image of " + std::to_string(picture.channels) +
                                             " channels as PNG: it must have 1 (grey) or 3 (RGB)"};
  }
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(picture.width);
  png.height = static_cast<png_uint_32>(picture.height);
  png.format = picture.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::vector<std::byte> bytes(size);
  if (png_image_write_to_memory(&png, bytes.data(), &size, 0, picture.pixels.data(), 0, nullptr) == 0) {
    return error{errc::internal, std::string("cannot encode a PNG: ") + png.message};
  }
  bytes.resize(size);
  return bytes;
}

result<void> write_png(const image& picture, const std::filesystem::path& path) {
  const auto bytes = encode_png(picture);
  if (!bytes) return bytes.failure();
  const std::filesystem::path part = path.string() + ".part";
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes->data()), static_cast<std::streamsize>(bytes->size()));
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(part, path, failed);
  if (!file || failed) {
    return error{errc::io, "cannot write " + path.string() + ": is the folder there, writable and not full?"};
  }
  return {};
}

}  // namespace perdura::worker
