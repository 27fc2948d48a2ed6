// What other folders call: checks the sizes, then goes through the table of the best instruction set.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#define XXH_STATIC_LINKING_ONLY  // for a state on the stack
#include <xxhash.h>

#include "actors/base/check.hpp"
#include "kernels/adamw.hpp"
#include "kernels/backend.hpp"
#include "kernels/bf16.hpp"
#include "kernels/diffusion.hpp"
#include "kernels/elementary.hpp"
#include "kernels/hash.hpp"
#include "kernels/philox.hpp"
#include "kernels/sums.hpp"

namespace perdura::kernels {

#ifdef PERDURA_AVX2_LOOPS
const backend& avx2_table();
const backend* avx2_backend() {
  static const bool present = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return present ? &avx2_table() : nullptr;
}
#else
const backend* avx2_backend() { return nullptr; }
#endif

const backend& best_backend() {
  static const backend& best = avx2_backend() ? *avx2_backend() : scalar_backend();
  return best;
}

float random_normal(const random_key& key, std::uint32_t element) {
  const auto words = philox4x32_10(philox_counter_of(key, element / 4), philox_key_of(key));
  const auto [first, second] = normals_of(words[element % 4 / 2 * 2], words[element % 4 / 2 * 2 + 1]);
  return element % 2 == 0 ? first : second;
}

namespace {

// Loops draw whole blocks of four elements: the head of a range that begins within one goes through a block
// of its own.
template <class Loop>
void fill_from(Loop loop, const random_key& key, std::span<float> out, std::uint32_t first) {
  if (const std::uint32_t skipped = first % 4; skipped != 0) {
    std::array<float, 4> head{};
    loop(key, first / 4, head.data(), head.size());
    const std::size_t taken = std::min<std::size_t>(head.size() - skipped, out.size());
    std::copy_n(head.begin() + skipped, taken, out.begin());
    out = out.subspan(taken);
    first += 4 - skipped;
  }
  if (!out.empty()) loop(key, first / 4, out.data(), out.size());
}

}  // namespace

void fill_uniform(const random_key& key, std::span<float> out, std::uint32_t first) {
  fill_from(best_backend().fill_uniform, key, out, first);
}

void fill_normal(const random_key& key, std::span<float> out, std::uint32_t first) {
  fill_from(best_backend().fill_normal, key, out, first);
}

void round_to_bf16(std::span<const float> from, std::span<bf16> to) {
  PERDURA_CHECK(from.size() == to.size(), "as many numbers as their roundings");
  best_backend().to_bf16(from.data(), to.data(), from.size());
}

bool completes_tree(std::span<const reduce_input> inputs) {
  std::array<std::uint32_t, slots_log2_max + 2> stack{};
  std::size_t depth = 0;
  for (const auto& input : inputs) {
    if (!std::has_single_bit(input.slots) || input.slots > 1U << slots_log2_max) return false;
    // A bigger block after a smaller pending one can never be its sibling.
    if (depth > 0 && stack[depth - 1] < input.slots) return false;
    stack[depth++] = input.slots;
    for (; depth > 1 && stack[depth - 1] == stack[depth - 2]; --depth) stack[depth - 2] *= 2;
    if (stack[0] > 1U << slots_log2_max) return false;
  }
  return depth == 1;
}

void add(std::span<const float> left, std::span<const float> right, std::span<float> out) {
  PERDURA_CHECK(left.size() == out.size() && right.size() == out.size(), "sums of arrays of different sizes");
  best_backend().add(left.data(), right.data(), out.data(), out.size());
}

double reduce(std::span<const reduce_input> inputs, float scale, std::span<float> out) {
  PERDURA_CHECK(completes_tree(inputs), "partial sums do not complete the tree over the slots");
  return best_backend().reduce(inputs.data(), inputs.size(), scale, out.data(), out.size());
}

double norm2(std::span<const float> values) { return best_backend().norm2(values.data(), values.size()); }

double power(double base, std::uint64_t exponent) {
  double result = 1.0;
  for (; exponent != 0; exponent >>= 1, base *= base)
    if (exponent & 1U) result *= base;
  return result;
}

adamw_scalars scalars_of(const optimizer_config& config, const step_outcome& outcome) {
  PERDURA_CHECK(outcome.optimizer_time >= 1, "an applied step has an optimizer time");
  const double rate = outcome.learning_rate;
  return {
      .clip = outcome.clip_scale,
      .keep = static_cast<float>(1.0 - rate * config.weight_decay),
      .first_weight = static_cast<float>(1.0 - config.beta1),
      .second_keep = static_cast<float>(config.beta2),
      .second_weight = static_cast<float>(1.0 - config.beta2),
      .step_size = static_cast<float>(rate / (1.0 - power(config.beta1, outcome.optimizer_time))),
      .inverse_root = static_cast<float>(1.0 / std::sqrt(1.0 - power(config.beta2, outcome.optimizer_time))),
      .epsilon = static_cast<float>(config.epsilon),
      .average_weight = static_cast<float>(1.0 - config.ema_decay),
  };
}

void apply_adamw(const optimizer_config& config, const step_outcome& outcome, const adamw_tile& tile,
                 std::span<const float> gradient) {
  if (outcome.skipped) return;
  best_backend().adamw(scalars_of(config, outcome), tile, gradient.data(), gradient.size());
}

float logit_normal_time(const random_key& key) { return 1.0F / (1.0F + exp_of(-random_normal(key, 0))); }

void make_flow_sample(std::span<const std::uint8_t> pixels, float time, const random_key& key,
                      std::span<float> noisy, std::span<float> target) {
  PERDURA_CHECK(noisy.size() == pixels.size() && target.size() == pixels.size(),
                "a sample's arrays differ in size");
  fill_normal(key, target);
  best_backend().blend(pixels.data(), time, target.data(), noisy.data(), pixels.size());
}

std::uint64_t hash64(std::span<const std::byte> bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

std::uint64_t hash64_of_parts(std::span<const std::span<const std::byte>> parts) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const auto& part : parts) XXH3_64bits_update(&state, part.data(), part.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace perdura::kernels
