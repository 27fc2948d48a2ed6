#include "worker/sampler/sampler.hpp"

#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <vector>

#include "kernels/philox.hpp"
#include "worker/model/torch.hpp"

#undef CHECK  // LibTorch's
#include <doctest/doctest.h>

using namespace perdura;
using namespace perdura::worker;

namespace {

// Predicts the velocity of a straight path to an image filled with `value(label)`: v = (x - value) / t.
class straight final : public denoiser {
 public:
  const std::vector<parameter>& parameters() const override { return none_; }
  std::uint64_t parameter_count() const override { return 0; }
  std::uint32_t stages() const override { return 1; }
  image_shape image() const override { return {1, 2, 3}; }
  std::int64_t classes() const override { return 3; }
  void bind(const float*) override {}
  void bind(const kernels::bf16*) override {}
  void initialise(std::uint64_t, std::uint64_t, std::span<float>) const override {}
  std::unique_ptr<slot_values> make_slot() const override { return nullptr; }
  void forward_stage(std::uint32_t, const slot_rows&, slot_values&) override {}
  double loss(const slot_rows&, slot_values&) override { return 0; }
  void backward_stage(std::uint32_t, const slot_rows&, slot_values&, float*) override {}
  std::uint64_t slot_bytes(std::int64_t) const override { return 0; }
  std::uint64_t workspace_bytes(std::int64_t) const override { return 0; }
  at::Tensor forward(const at::Tensor& noisy, const at::Tensor& time, const at::Tensor& label) override {
    at::Tensor out = at::empty(noisy.sizes());
    rows.push_back(noisy.size(0));
    for (std::int64_t i = 0; i < noisy.numel(); ++i) {
      const std::int64_t row = i / image().count();
      const float t = time.const_data_ptr<float>()[row];
      times.push_back(t);
      const auto l = label.const_data_ptr<std::int64_t>()[row];
      out.mutable_data_ptr<float>()[i] = (noisy.const_data_ptr<float>()[i] - value(l)) / t;
    }
    return out;
  }
  float value(std::int64_t label) const {
    return label == broken ? NAN : label == 3 ? 0.0F : 0.2F * static_cast<float>(label);
  }

  std::int64_t broken = -1;
  std::vector<std::int64_t> rows;
  std::vector<float> times;

 private:
  std::vector<parameter> none_;
};

image filled(std::uint8_t level) { return {3, 2, 1, std::vector<std::uint8_t>(6, level)}; }
std::uint8_t level_of(float value) { return static_cast<std::uint8_t>((value + 1.0F) * 127.5F + 0.5F); }

bool near(const image& a, const image& b) {
  for (std::size_t i = 0; i < a.pixels.size(); ++i) {
    if (std::abs(a.pixels[i] - b.pixels[i]) > 1) return false;
  }
  return a.width == b.width && a.height == b.height && a.channels == b.channels;
}

// A model with parameters none of which is zero.
std::unique_ptr<denoiser> small_model(std::vector<float>& parameters) {
  job_config job;
  job.model.width = 16;
  job.model.depth = 1;
  job.model.patch = 7;
  auto model = make_denoiser(job).value();
  parameters.resize(model->parameter_count());
  kernels::fill_normal({1, 0, 0, kernels::random_stream::canary}, parameters);
  for (float& p : parameters) p *= 0.1F;
  model->bind(parameters.data());
  return model;
}

}  // namespace

TEST_CASE("a straight path ends at its image in any number of steps") {
  straight model;
  for (const std::uint32_t steps : {1U, 2U, 7U, 40U}) {
    const auto images =
        sample(model, std::vector<sample_request>{{.label = 2, .seed = 5, .steps = steps, .guidance = 1.0F}});
    REQUIRE(images.has_value());
    CHECK(near(images->front(), filled(level_of(0.4F))));
  }
}

TEST_CASE("times run from 1 down to the last step before 0") {
  straight model;
  REQUIRE(sample(model, std::vector<sample_request>{{.label = 1, .seed = 1, .steps = 4, .guidance = 1.0F}})
              .has_value());
  CHECK(model.rows == std::vector<std::int64_t>(4, 1));
  const std::vector<float> expected{1.0F, 0.75F, 0.5F, 0.25F};
  for (std::size_t i = 0; i < model.times.size(); ++i) CHECK(model.times[i] == expected[i / 6]);
}

TEST_CASE("guidance goes beyond the label's image, away from that of no class") {
  straight model;
  const std::vector<sample_request> requests{{.label = 2, .seed = 3, .steps = 10, .guidance = 2.0F},
                                             {.label = 2, .seed = 3, .steps = 10, .guidance = 0.0F},
                                             {.label = 3, .seed = 3, .steps = 10, .guidance = 2.0F}};
  const auto images = sample(model, requests);
  REQUIRE(images.has_value());
  CHECK(near((*images)[0], filled(level_of(0.8F))));
  CHECK(near((*images)[1], filled(level_of(0.0F))));
  CHECK(near((*images)[2], filled(level_of(0.0F))));
  CHECK(model.rows.front() == 5);  // the label "no class" needs no second row
}

TEST_CASE("each row has its own label, seed and number of steps, and leaves the batch when it is done") {
  straight model;
  const auto images =
      sample(model, std::vector<sample_request>{{.label = 1, .seed = 1, .steps = 2},
                                                {.label = 2, .seed = 2, .steps = 3, .guidance = 1.0F}});
  REQUIRE(images.has_value());
  CHECK(near((*images)[0], filled(level_of(0.4F))));
  CHECK(near((*images)[1], filled(level_of(0.4F))));
  const std::vector<std::int64_t> expected{3, 3, 1};
  CHECK(model.rows == expected);
}

TEST_CASE("a picture depends on its own request alone") {
  std::vector<float> parameters;
  const auto model = small_model(parameters);
  const sample_request asked{.label = 7, .seed = 11, .steps = 3};
  const auto alone = sample(*model, std::vector<sample_request>{asked});
  std::vector<sample_request> crowd;
  for (std::uint64_t i = 0; i < 12; ++i) crowd.push_back({.label = 2, .seed = i, .steps = 2});
  crowd.push_back(asked);
  const auto among = sample(*model, crowd);
  REQUIRE((alone.has_value() && among.has_value()));
  CHECK(alone->front() == among->back());
  auto other = asked;
  other.seed = 12;
  CHECK(sample(*model, std::vector<sample_request>{other})->front() != alone->front());
}

TEST_CASE("a request on its way may go on elsewhere") {
  std::vector<float> noise(4, 1.0F);
  const auto first = make_solver("euler", 2, noise).value();
  const std::vector<float> velocity(4, 0.5F);
  first->advance(velocity);
  const auto second = first->clone();
  first->advance(velocity);
  CHECK(first->is_finished());
  CHECK(!second->is_finished());
  CHECK(second->time() == 0.5F);
  second->advance(velocity);
  CHECK(std::ranges::equal(first->latent(), second->latent()));
}

TEST_CASE("a sample that is not finite is an error that names it") {
  straight model;
  model.broken = 1;
  const auto images =
      sample(model, std::vector<sample_request>{{.label = 2, .seed = 1}, {.label = 1, .seed = 42}});
  REQUIRE(!images.has_value());
  CHECK(images.failure().message.find("class 1 with seed 42") != std::string::npos);
}

TEST_CASE("requests out of range are refused by the field's name") {
  straight model;
  const auto refusal = [&](const sample_request& r) {
    return sample(model, std::vector<sample_request>{r}).failure().message;
  };
  CHECK(refusal({.label = 4}).find("class = 4") != std::string::npos);
  CHECK(refusal({.label = -1}).find("class = -1") != std::string::npos);
  CHECK(refusal({.steps = 0}).find("steps = 0") != std::string::npos);
  CHECK(refusal({.steps = solver_steps_max + 1}).find("1..1000") != std::string::npos);
  CHECK(refusal({.guidance = std::numeric_limits<float>::quiet_NaN()}).find("guidance") != std::string::npos);
  CHECK(refusal({.solver = "heun"}).find("\"euler\"") != std::string::npos);
}

TEST_CASE("values become levels, cut off at black and white") {
  const std::vector<float> values{-1.0F, 1.0F, 0.0F, -7.0F, 7.0F, 0.5F};
  const image grey = to_image({1, 2, 3}, values);
  CHECK(grey.pixels == std::vector<std::uint8_t>{{0, 255, 128, 0, 255, 191}});
  const image rgb = to_image({3, 1, 2}, values);  // planes become pixels
  CHECK(rgb.pixels == std::vector<std::uint8_t>{{0, 128, 255, 255, 0, 191}});
}

TEST_CASE("a grid holds every image at its place") {
  const std::vector<image> images{filled(10), filled(20), filled(30)};
  const image grid = grid_of(images, {.columns = 2, .zoom = 2, .gap = 1});
  CHECK(grid.width == 13);
  CHECK(grid.height == 9);
  const auto at = [&](std::int64_t x, std::int64_t y) {
    return int{grid.pixels[static_cast<std::size_t>(y * grid.width + x)]};
  };
  CHECK(at(0, 0) == 10);
  CHECK(at(5, 3) == 10);
  CHECK(at(6, 0) == 255);
  CHECK(at(7, 0) == 20);
  CHECK(at(12, 3) == 20);
  CHECK(at(0, 4) == 255);
  CHECK(at(5, 8) == 30);
  CHECK(at(7, 5) == 255);
}

TEST_CASE("a PNG read back is the picture that was written") {
  const auto folder =
      std::filesystem::temp_directory_path() / ("perdura_sampler_test." + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  for (const image& picture : {filled(77), image{2, 1, 3, {1, 2, 3, 4, 5, 6}}}) {
    const auto path = folder / "picture.png";
    REQUIRE(write_png(picture, path).has_value());
    png_image png{};
    png.version = PNG_IMAGE_VERSION;
    REQUIRE(png_image_begin_read_from_file(&png, path.c_str()) != 0);
    CHECK((png.format & PNG_FORMAT_FLAG_COLOR) == (picture.channels == 3 ? PNG_FORMAT_FLAG_COLOR : 0));
    std::vector<std::uint8_t> pixels(PNG_IMAGE_SIZE(png));
    REQUIRE(png_image_finish_read(&png, nullptr, pixels.data(), 0, nullptr) != 0);
    CHECK(pixels == picture.pixels);
  }
  CHECK(write_png(filled(1), folder / "missing" / "picture.png").failure().code == errc::io);
  CHECK(encode_png({1, 1, 2, {1, 2}}).failure().code == errc::invalid_argument);
  std::filesystem::remove_all(folder);
}
