#include <atomic>
#include <bit>
#include <cstdio>
#include <cstdlib>

#include "actors/base/check.hpp"
#include "actors/base/frames.hpp"
#include "actors/base/ids.hpp"
#include "actors/base/log.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"

namespace perdura {

void check_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "perdura: broken invariant: %s (%s) at %s:%d\n", why, condition, file, line);
  std::abort();
}

const char* to_string(errc code) {
  switch (code) {
    case errc::ok: return "ok";
    case errc::invalid_argument: return "invalid argument";
    case errc::not_found: return "not found";
    case errc::already_exists: return "already exists";
    case errc::corrupt: return "corrupt";
    case errc::io: return "input/output";
    case errc::unavailable: return "unavailable";
    case errc::timeout: return "timeout";
    case errc::refused: return "refused";
    case errc::version_mismatch: return "version mismatch";
    case errc::exhausted: return "limit reached";
    case errc::internal: return "internal";
  }
  return "unknown";
}

std::string to_string(const incarnation& who) {
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(who.high),
                static_cast<unsigned long long>(who.low));
  return text;
}

std::string short_name(const incarnation& who) { return to_string(who).substr(0, 8); }

std::string to_string(const era& e) { return to_string(e.term) + "." + std::to_string(e.count); }

std::string to_string(const plan_id& id) { return to_string(id.at) + "/" + std::to_string(id.sequence); }

std::string to_string(const block& b) { return "[" + std::to_string(b.first) + "," + std::to_string(b.end()) + ")"; }

incarnation parse_incarnation(const std::string& text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
  return {std::stoull(text.substr(0, 16), nullptr, 16), std::stoull(text.substr(16), nullptr, 16)};
}

const plan_member* plan::find(const incarnation& who) const {
  for (const auto& m : members)
    if (m.who == who) return &m;
  return nullptr;
}

bool plan::holds(const incarnation& who, tile_id tile) const {
  for (auto index : holders[tile.value])
    if (members[index].who == who) return true;
  return false;
}

namespace {
bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }
bool same_bits(float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }
}  // namespace

bool step_outcome::operator==(const step_outcome& o) const {
  return same_bits(gradient_norm, o.gradient_norm) && same_bits(clip_scale, o.clip_scale) &&
         same_bits(learning_rate, o.learning_rate) && skipped == o.skipped && optimizer_time == o.optimizer_time &&
         same_bits(loss, o.loss) && skips_in_a_row == o.skips_in_a_row;
}

bool vote_part::operator==(const vote_part& o) const {
  return tile == o.tile && same_bits(norm2, o.norm2) && finite == o.finite && same_bits(loss, o.loss);
}

bool is_aligned(const block& b) { return std::has_single_bit(b.size) && b.first % b.size == 0; }

std::vector<block> aligned_cover(std::uint32_t first, std::uint32_t end) {
  std::vector<block> cover;
  while (first < end) {
    std::uint32_t size = first == 0 ? std::bit_floor(end) : first & (~first + 1);
    while (first + size > end) size /= 2;
    cover.push_back({first, size});
    first += size;
  }
  return cover;
}

namespace log {
namespace {
std::atomic<sink> current{nullptr};
std::atomic<level> threshold{level::info};
}  // namespace

void set_sink(sink s, level least) {
  current = s;
  threshold = least;
}

void write(level l, std::string_view line) {
  if (l < threshold.load(std::memory_order_relaxed)) return;
  if (auto* s = current.load(std::memory_order_acquire)) return s(l, line);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}
}  // namespace log

}  // namespace perdura
