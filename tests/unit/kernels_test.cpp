#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "actors/base/plan.hpp"
#include "kernels/adamw.hpp"
#include "kernels/backend.hpp"
#include "kernels/bf16.hpp"
#include "kernels/diffusion.hpp"
#include "kernels/elementary.hpp"
#include "kernels/hash.hpp"
#include "kernels/philox.hpp"
#include "kernels/sums.hpp"

using namespace perdura;
using namespace perdura::kernels;

namespace {

// Sizes around the loops' lanes, runs and chunks.
const std::vector<std::size_t> sizes{0, 1, 3, 15, 16, 17, 63, 64, 65, 784, 1023, 1024, 1025, 5000};

std::vector<float> normals(std::uint64_t seed, std::size_t count) {
  std::vector<float> values(count);
  fill_normal({.seed = seed, .step = 1, .sample = 0, .stream = random_stream::canary}, values);
  return values;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// Distance to the true value in units of the last place of the result.
double error_in_ulp(float got, long double want) {
  const float rounded = static_cast<float>(want);
  const float next = std::nextafter(std::fabs(rounded), std::numeric_limits<float>::infinity());
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / (next - std::fabs(rounded)));
}

std::uint64_t slow_sum_hash(const std::vector<std::vector<float>>& slots, float scale) {
  auto level = slots;
  while (level.size() > 1) {
    std::vector<std::vector<float>> above(level.size() / 2);
    for (std::size_t i = 0; i < above.size(); ++i) {
      above[i].resize(level[0].size());
      for (std::size_t j = 0; j < level[0].size(); ++j) above[i][j] = level[2 * i][j] + level[2 * i + 1][j];
    }
    level = std::move(above);
  }
  for (float& x : level[0]) x *= scale;
  return hash64(level[0]);
}

}  // namespace

TEST_CASE("Philox4x32-10 gives its authors' known answers") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) ==
        philox_counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}) ==
        philox_counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        philox_counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("a sequence can be drawn from any element on") {
  const random_key key{.seed = 1, .step = 2, .sample = 3, .stream = random_stream::initial};
  std::vector<float> normal(300);
  std::vector<float> uniform(300);
  fill_normal(key, normal);
  fill_uniform(key, uniform);
  for (const std::uint32_t first : {0U, 1U, 2U, 3U, 4U, 61U, 64U, 203U, 299U}) {
    for (const std::size_t count : {0, 1, 2, 5, 90}) {
      const std::size_t n = std::min(count, normal.size() - first);
      std::vector<float> part(n);
      fill_normal(key, part, first);
      CHECK(std::equal(part.begin(), part.end(), normal.begin() + first));
      fill_uniform(key, part, first);
      CHECK(std::equal(part.begin(), part.end(), uniform.begin() + first));
    }
  }
}

TEST_CASE("bfloat16 is the nearest number of eight bits, the even one of two; NaN and infinity stay") {
  const auto rounded = [](float x) { return float_of(bf16_of(x)); };
  CHECK(rounded(1.0F) == 1.0F);
  CHECK(rounded(1.00390625F) == 1.0F);       // half way, down to the even one
  CHECK(rounded(1.01171875F) == 1.015625F);  // half way, up to the even one
  CHECK(rounded(1.00390637F) == 1.0078125F);
  CHECK(rounded(-1.00390637F) == -1.0078125F);
  CHECK(rounded(std::numeric_limits<float>::max()) == std::numeric_limits<float>::infinity());
  CHECK(rounded(-std::numeric_limits<float>::infinity()) == -std::numeric_limits<float>::infinity());
  for (const std::uint32_t bits : {0x7F800001U, 0x7FFFFFFFU, 0xFFFFFFFFU, 0x7FC00000U})
    CHECK(std::isnan(rounded(std::bit_cast<float>(bits))));
  for (const float x : normals(4, 1000)) CHECK(std::fabs(rounded(x) - x) <= std::fabs(x) / 256);
}

TEST_CASE("every part of a random key changes the sequence") {
  const random_key base{.seed = 1, .step = 2, .sample = 3, .stream = random_stream::noise};
  std::vector<random_key> keys(6, base);
  keys[1].seed = 1ULL << 40;
  keys[2].step = 1ULL << 40;
  keys[3].step = 3;
  keys[4].sample = 4;
  keys[5].stream = random_stream::time;
  for (std::size_t i = 0; i < keys.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) CHECK(random_word(keys[i], 0) != random_word(keys[j], 0));
}

TEST_CASE("a filled sequence has the elements that are drawn one by one") {
  const random_key key{.seed = 7, .step = 5, .sample = 9, .stream = random_stream::noise};
  for (auto size : sizes) {
    std::vector<float> normal(size);
    std::vector<float> uniform(size);
    fill_normal(key, normal);
    fill_uniform(key, uniform);
    for (std::size_t i = 0; i < size; ++i) {
      REQUIRE(std::bit_cast<std::uint32_t>(normal[i]) ==
              std::bit_cast<std::uint32_t>(random_normal(key, static_cast<std::uint32_t>(i))));
      REQUIRE(uniform[i] == random_uniform(key, static_cast<std::uint32_t>(i)));
    }
  }
}

TEST_CASE("normals have the moments and the tails of the normal distribution") {
  const auto values = normals(3, 1 << 20);
  double mean = 0;
  double variance = 0;
  double fourth = 0;
  std::size_t beyond_two = 0;
  for (double x : values) {
    mean += x;
    variance += x * x;
    fourth += x * x * x * x;
    beyond_two += std::fabs(x) > 2.0;
  }
  const auto n = static_cast<double>(values.size());
  CHECK(std::fabs(mean / n) < 0.005);
  CHECK(std::fabs(variance / n - 1.0) < 0.007);
  CHECK(std::fabs(fourth / n - 3.0) < 0.05);
  CHECK(std::fabs(static_cast<double>(beyond_two) / n - 0.0455) < 0.001);
}

TEST_CASE("neighbouring normals are not correlated") {
  const auto values = normals(4, 1 << 20);
  for (std::size_t lag = 1; lag <= 8; ++lag) {
    double sum = 0;
    for (std::size_t i = lag; i < values.size(); ++i) sum += static_cast<double>(values[i]) * values[i - lag];
    CHECK(std::fabs(sum / static_cast<double>(values.size())) < 0.005);
  }
}

TEST_CASE("log is within two units of the last place") {
  double worst = 0;
  for (std::uint32_t i = 1; i <= 1U << 24; i += 1 + (i >> 12)) {
    const float u = static_cast<float>(i) * 0x1p-24F;
    if (u != 1.0F) worst = std::max(worst, error_in_ulp(log_of(u), std::log(static_cast<long double>(u))));
  }
  for (float x = 1e-37F; x < 1e38F; x *= 1.37F)
    worst = std::max(worst, error_in_ulp(log_of(x), std::log(static_cast<long double>(x))));
  CHECK(worst <= 2.0);
  CHECK(log_of(1.0F) == 0.0F);
}

TEST_CASE("sine and cosine of a turn are within 2^-23 of the truth and exact at the quadrants") {
  const long double step = 6.283185307179586476925286766559L / (1L << 24);
  long double worst = 0;
  for (std::uint32_t u = 0; u < 1U << 24; u += 257) {
    const auto [sine, cosine] = sine_cosine_of_turn(u);
    worst = std::max(worst, std::fabs(sine - std::sin(u * step)));
    worst = std::max(worst, std::fabs(cosine - std::cos(u * step)));
  }
  CHECK(worst < 0x1p-23L);
  CHECK(sine_cosine_of_turn(0).cosine == 1.0F);
  CHECK(sine_cosine_of_turn(1U << 22).sine == 1.0F);
  CHECK(sine_cosine_of_turn(1U << 23).cosine == -1.0F);
  CHECK(sine_cosine_of_turn(3U << 22).sine == -1.0F);
}

TEST_CASE("exp is within two units of the last place and clamped to normal numbers") {
  double worst = 0;
  for (float x = -87.0F; x < 88.0F; x += 0.0137F)
    worst = std::max(worst, error_in_ulp(exp_of(x), std::exp(static_cast<long double>(x))));
  CHECK(worst <= 2.0);
  CHECK(exp_of(0.0F) == 1.0F);
  CHECK(std::isnormal(exp_of(-1000.0F)));
  CHECK(std::isfinite(exp_of(1000.0F)));
}

TEST_CASE("scalar and AVX2 loops give the same bits") {
  const backend* fast = avx2_backend();
  if (!fast) {
    MESSAGE("no AVX2 here: nothing to compare");
    return;
  }
  const backend& slow = scalar_backend();
  const random_key key{.seed = 11, .step = 12, .sample = 13, .stream = random_stream::noise};
  for (auto n : sizes) {
    std::vector<float> a(n);
    std::vector<float> b(n);
    slow.fill_normal(key, 5, a.data(), n);
    fast->fill_normal(key, 5, b.data(), n);
    CHECK(same_bits(a, b));
    slow.fill_uniform(key, 5, a.data(), n);
    fast->fill_uniform(key, 5, b.data(), n);
    CHECK(same_bits(a, b));
    std::vector<bf16> c(n);
    std::vector<bf16> d(n);
    slow.to_bf16(a.data(), c.data(), n);
    fast->to_bf16(a.data(), d.data(), n);
    CHECK((n == 0 || std::memcmp(c.data(), d.data(), n * sizeof(bf16)) == 0));

    const auto x = normals(1, n);
    const auto y = normals(2, n);
    const auto z = normals(3, n);
    slow.add(x.data(), y.data(), a.data(), n);
    fast->add(x.data(), y.data(), b.data(), n);
    CHECK(same_bits(a, b));
    CHECK(std::bit_cast<std::uint64_t>(slow.norm2(x.data(), n)) ==
          std::bit_cast<std::uint64_t>(fast->norm2(x.data(), n)));

    const std::vector<reduce_input> inputs{{x.data(), 2}, {y.data(), 1}, {z.data(), 1}};
    const double slow_norm = slow.reduce(inputs.data(), inputs.size(), 0.1F, a.data(), n);
    const double fast_norm = fast->reduce(inputs.data(), inputs.size(), 0.1F, b.data(), n);
    CHECK(same_bits(a, b));
    CHECK(std::bit_cast<std::uint64_t>(slow_norm) == std::bit_cast<std::uint64_t>(fast_norm));

    std::vector<std::uint8_t> pixels(n);
    for (std::size_t i = 0; i < n; ++i)
      pixels[i] = static_cast<std::uint8_t>(random_word(key, static_cast<std::uint32_t>(i)));
    auto slow_target = x;
    auto fast_target = x;
    slow.blend(pixels.data(), 0.3F, slow_target.data(), a.data(), n);
    fast->blend(pixels.data(), 0.3F, fast_target.data(), b.data(), n);
    CHECK(same_bits(a, b));
    CHECK(same_bits(slow_target, fast_target));

    auto p = std::vector{x, x};
    auto m = std::vector{y, y};
    std::vector<float> squares(n);
    for (std::size_t i = 0; i < n; ++i) squares[i] = z[i] * z[i];
    auto v = std::vector{squares, squares};
    auto e = std::vector{z, z};
    const adamw_scalars scalars{0.7F, 0.99F, 0.1F, 0.999F, 0.001F, 1e-2F, 1.3F, 1e-8F, 0.005F};
    const auto tile = [&](std::size_t k) {
      return adamw_tile{p[k].data(), m[k].data(), v[k].data(), e[k].data()};
    };
    slow.adamw(scalars, tile(0), y.data(), n);
    fast->adamw(scalars, tile(1), y.data(), n);
    CHECK(same_bits(p[0], p[1]));
    CHECK(same_bits(m[0], m[1]));
    CHECK(same_bits(v[0], v[1]));
    CHECK(same_bits(e[0], e[1]));
  }
}

TEST_CASE("any blocks that partition the slots reduce to the bits of the full tree") {
  constexpr std::uint32_t slots_count = 16;
  constexpr std::size_t n = 2500;
  std::vector<std::vector<float>> slots;
  for (std::uint32_t s = 0; s < slots_count; ++s) slots.push_back(normals(100 + s, n));
  const auto want = slow_sum_hash(slots, 1.0F / 24.0F);
  for (std::uint32_t cut = 0; cut <= slots_count; ++cut) {
    auto blocks = aligned_cover(0, cut);
    for (const auto& b : aligned_cover(cut, slots_count)) blocks.push_back(b);
    std::vector<std::vector<float>> partials;
    for (const auto& b : blocks) {
      std::vector<reduce_input> inputs;
      for (auto s = b.first; s < b.end(); ++s) inputs.push_back({slots[s].data(), 1});
      partials.emplace_back(n);
      reduce(inputs, 1.0F, partials.back());
    }
    std::vector<reduce_input> inputs;
    for (std::size_t i = 0; i < blocks.size(); ++i) inputs.push_back({partials[i].data(), blocks[i].size});
    std::vector<float> out(n);
    const double squares = reduce(inputs, 1.0F / 24.0F, out);
    CHECK(hash64(out) == want);
    CHECK(squares == norm2(out));
  }
}

TEST_CASE("inputs that leave a hole in the tree are recognised") {
  const auto completes = [](std::vector<std::uint32_t> sizes_of_blocks) {
    std::vector<reduce_input> inputs;
    for (auto size : sizes_of_blocks) inputs.push_back({nullptr, size});
    return completes_tree(inputs);
  };
  CHECK(completes({1}));
  CHECK(completes({4, 2, 1, 1}));
  CHECK(completes({1, 1, 2, 4, 8}));
  CHECK_FALSE(completes({}));
  CHECK_FALSE(completes({4, 2, 1}));
  CHECK_FALSE(completes({1, 2, 1}));
  CHECK_FALSE(completes({3, 1}));
  CHECK_FALSE(completes({1U << slots_log2_max, 1U << slots_log2_max}));
}

TEST_CASE("a value that is not finite shows in the sum of squares, the largest finite ones do not") {
  std::vector<float> values(5000, std::numeric_limits<float>::max());
  CHECK(std::isfinite(norm2(values)));
  for (float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                    std::numeric_limits<float>::quiet_NaN()})
    for (std::size_t at : {std::size_t{0}, std::size_t{1234}, values.size() - 1}) {
      auto copy = values;
      copy[at] = bad;
      CHECK_FALSE(std::isfinite(norm2(copy)));
    }
}

TEST_CASE("powers are those of the mathematics") {
  CHECK(power(0.9, 0) == 1.0);
  CHECK(power(0.5, 10) == 0x1p-10);
  CHECK(power(0.999, 600) == doctest::Approx(std::pow(0.999, 600)).epsilon(1e-13));
}

// PyTorch's documented algorithm, in fp64 and without any fusion.
TEST_CASE("a hundred steps of AdamW follow the reference within fp32's accuracy") {
  constexpr std::size_t n = 1000;
  optimizer_config config;
  auto p = normals(20, n);
  std::vector<float> m(n);
  std::vector<float> v(n);
  auto e = p;
  std::vector<double> p_ref(p.begin(), p.end());
  std::vector<double> m_ref(n);
  std::vector<double> v_ref(n);
  auto e_ref = p_ref;
  for (std::uint64_t t = 1; t <= 100; ++t) {
    const auto g = normals(1000 + t, n);
    step_outcome outcome;
    outcome.optimizer_time = t;
    outcome.clip_scale = 0.5F;
    outcome.learning_rate = 2e-3F;
    apply_adamw(config, outcome, {p.data(), m.data(), v.data(), e.data()}, g);
    const double rate = outcome.learning_rate;
    for (std::size_t i = 0; i < n; ++i) {
      const double slope = 0.5 * g[i];
      p_ref[i] *= 1.0 - rate * config.weight_decay;
      m_ref[i] = config.beta1 * m_ref[i] + (1.0 - config.beta1) * slope;
      v_ref[i] = config.beta2 * v_ref[i] + (1.0 - config.beta2) * slope * slope;
      const double m_hat = m_ref[i] / (1.0 - std::pow(config.beta1, t));
      const double v_hat = v_ref[i] / (1.0 - std::pow(config.beta2, t));
      p_ref[i] -= rate * m_hat / (std::sqrt(v_hat) + config.epsilon);
      e_ref[i] = config.ema_decay * e_ref[i] + (1.0 - config.ema_decay) * p_ref[i];
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    CHECK(p[i] == doctest::Approx(p_ref[i]).epsilon(1e-5).scale(1.0));
    CHECK(m[i] == doctest::Approx(m_ref[i]).epsilon(1e-5).scale(1.0));
    CHECK(v[i] == doctest::Approx(v_ref[i]).epsilon(1e-5));
    CHECK(e[i] == doctest::Approx(e_ref[i]).epsilon(1e-5).scale(1.0));
  }
}

TEST_CASE("a skipped step leaves parameters, moments and average as they are") {
  const auto x = normals(30, 100);
  auto p = x;
  auto m = x;
  auto v = x;
  auto e = x;
  const std::vector<float> bad(100, std::numeric_limits<float>::quiet_NaN());
  step_outcome outcome;
  outcome.skipped = true;
  apply_adamw({}, outcome, {p.data(), m.data(), v.data(), e.data()}, bad);
  CHECK(same_bits(p, x));
  CHECK(same_bits(m, x));
  CHECK(same_bits(v, x));
  CHECK(same_bits(e, x));
}

TEST_CASE(
    "a flow sample lies between the image and the noise, and its velocity leads from one to the other") {
  std::vector<std::uint8_t> pixels(784);
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<std::uint8_t>(i);
  const random_key key{.seed = 1, .step = 1, .sample = 5, .stream = random_stream::noise};
  std::vector<float> noise(784);
  fill_normal(key, noise);
  std::vector<float> noisy(784);
  std::vector<float> target(784);
  for (float t : {0.0F, 0.25F, 1.0F}) {
    make_flow_sample(pixels, t, key, noisy, target);
    for (std::size_t i = 0; i < pixels.size(); ++i) {
      const double x = pixels[i] / 127.5 - 1.0;
      REQUIRE(std::fabs(noisy[i] - ((1 - t) * x + t * noise[i])) < 1e-6);
      REQUIRE(std::fabs(target[i] - (noise[i] - x)) < 1e-6);
    }
  }
}

TEST_CASE("logit-normal times lie inside (0, 1) around one half") {
  double sum = 0;
  std::uint32_t middle = 0;
  constexpr std::uint32_t n = 20000;
  for (std::uint32_t i = 0; i < n; ++i) {
    const float t = logit_normal_time({.seed = 1, .step = 1, .sample = i, .stream = random_stream::time});
    REQUIRE(t > 0.0F);
    REQUIRE(t < 1.0F);
    sum += t;
    middle += t > 0.26894143F && t < 0.73105857F;  // the sigmoid of -1 and 1
  }
  CHECK(std::fabs(sum / n - 0.5) < 0.01);
  CHECK(std::fabs(static_cast<double>(middle) / n - 0.6827) < 0.02);
}

TEST_CASE("the hash is XXH3") {
  CHECK(hash64(std::span<const std::byte>{}) == 0x2d06800538d394c2ULL);
  CHECK(hash64(std::span<const std::byte>{}, 1) != hash64(std::span<const std::byte>{}, 2));
}
