#include <algorithm>
#include <atomic>
#include <bit>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "actors/base/check.hpp"
#include "actors/base/config.hpp"
#include "actors/base/control.hpp"
#include "actors/base/frames.hpp"
#include "actors/base/ids.hpp"
#include "actors/base/log.hpp"
#include "actors/base/plan.hpp"
#include "actors/base/result.hpp"
#include "actors/base/rules.hpp"
#include "actors/base/version.hpp"

namespace perdura {

namespace {
std::atomic<check_handler> on_check_failed{nullptr};
}

void set_check_handler(check_handler handler) { on_check_failed = handler; }

void check_failed(const char* condition, const char* why, const char* file, int line) {
  if (auto* handler = on_check_failed.load()) handler(condition, why);
  std::fprintf(stderr, "perdura: broken invariant: %s (%s) at %s:%d\n", why, condition, file, line);
  std::abort();
}

result<endpoint> parse_endpoint(const std::string& text) {
  const auto colon = text.rfind(':');
  const error wrong{errc::invalid_argument,
                    "\"" + text + "\" is no address: expected HOST:PORT, as 127.0.0.1:7401"};
  if (colon == std::string::npos || colon == 0) return wrong;
  endpoint e{text.substr(0, colon), 0};
  if (e.host.front() == '[' && e.host.back() == ']') e.host = e.host.substr(1, e.host.size() - 2);
  const auto* end = text.data() + text.size();
  const auto [stop, failed] = std::from_chars(text.data() + colon + 1, end, e.port);
  if (failed != std::errc{} || stop != end || e.port == 0 || e.host.empty()) return wrong;
  return e;
}

std::string_view build_version() { return PERDURA_VERSION; }

std::string version_text(std::string_view program) {
  return std::string(program) + " " + PERDURA_VERSION + " (protocol " + std::to_string(protocol_version) +
         ", checkpoint format " + std::to_string(checkpoint_format_version) + ")";
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

std::string to_string(const block& b) {
  return "[" + std::to_string(b.first) + "," + std::to_string(b.end()) + ")";
}

incarnation parse_incarnation(const std::string& text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
  return {std::stoull(text.substr(0, 16), nullptr, 16), std::stoull(text.substr(16), nullptr, 16)};
}

const plan_member* plan::find(const incarnation& who) const {
  const auto at = std::lower_bound(members.begin(), members.end(), who,
                                   [](const plan_member& m, const incarnation& w) { return m.who < w; });
  return at != members.end() && at->who == who ? &*at : nullptr;
}

bool plan::holds(const incarnation& who, tile_id tile) const {
  const auto* m = find(who);
  if (!m) return false;
  const auto& h = holders[tile.value];
  return std::find(h.begin(), h.end(), static_cast<member_index>(m - members.data())) != h.end();
}

namespace {
bool same_bits(double a, double b) {
  return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
}
bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}
}  // namespace

bool step_outcome::operator==(const step_outcome& o) const {
  return same_bits(gradient_norm, o.gradient_norm) && same_bits(clip_scale, o.clip_scale) &&
         same_bits(learning_rate, o.learning_rate) && skipped == o.skipped &&
         optimizer_time == o.optimizer_time && same_bits(loss, o.loss) && skips_in_a_row == o.skips_in_a_row;
}

bool vote_part::operator==(const vote_part& o) const {
  return tile == o.tile && same_bits(norm2, o.norm2) && finite == o.finite && same_bits(loss, o.loss);
}

sharding_level level_of(const job_config& job) {
  if (job.sharding == "optimizer") return sharding_level::optimizer;
  if (job.sharding == "gradients") return sharding_level::gradients;
  if (job.sharding == "parameters") return sharding_level::parameters;
  return sharding_level::replicated;
}

std::uint32_t holders_wanted(const job_config& job) {
  return level_of(job) == sharding_level::replicated ? 0 : job.replicas;
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

const char* to_string(worker_phase p) {
  switch (p) {
    case worker_phase::idle: return "idle";
    case worker_phase::settling: return "settling";
    case worker_phase::compute: return "compute";
    case worker_phase::exchange: return "exchange";
    case worker_phase::vote: return "vote";
    case worker_phase::apply: return "apply";
    case worker_phase::gather: return "gather";
    case worker_phase::paused: return "paused";
    case worker_phase::finished: return "finished";
  }
  return "unknown";
}

const char* to_string(rule r) {
  switch (r) {
    case rule::promise: return "promise";
    case rule::vote_needs_gradient: return "vote_needs_gradient";
    case rule::apply_needs_verdict: return "apply_needs_verdict";
    case rule::carry_verdict: return "carry_verdict";
    case rule::keep_until_verdict: return "keep_until_verdict";
    case rule::report_verdict: return "report_verdict";
    case rule::half_copy_is_none: return "half_copy_is_none";
    case rule::hold_newer: return "hold_newer";
    case rule::drop_older: return "drop_older";
    case rule::await_ready: return "await_ready";
    case rule::switch_at_verdict: return "switch_at_verdict";
    case rule::tag_parameters: return "tag_parameters";
    case rule::carry_norm: return "carry_norm";
    case rule::all_votes: return "all_votes";
    case rule::one_vote: return "one_vote";
    case rule::await_leavers: return "await_leavers";
    case rule::answer_at_version: return "answer_at_version";
    case rule::resume_at_version: return "resume_at_version";
    case rule::abandon_streamed: return "abandon_streamed";
    case rule::newest_term: return "newest_term";
    case rule::own_life: return "own_life";
    case rule::whole_feed: return "whole_feed";
    case rule::feed_when_caught_up: return "feed_when_caught_up";
    case rule::redo_unseen: return "redo_unseen";
    case rule::stand_by_verdict: return "stand_by_verdict";
    case rule::decide_by_inventory: return "decide_by_inventory";
    case rule::start_after_all: return "start_after_all";
    case rule::persist_era: return "persist_era";
    case rule::persist_timeline: return "persist_timeline";
    case rule::keep_verdict: return "keep_verdict";
    case rule::persist_proposal: return "persist_proposal";
    case rule::persist_start: return "persist_start";
    case rule::drop_fenced: return "drop_fenced";
    case rule::await_release: return "await_release";
    case rule::hear_left_out: return "hear_left_out";
    case rule::heed_involved: return "heed_involved";
    case rule::excuse_sleep: return "excuse_sleep";
    case rule::count_: break;
  }
  return "unknown";
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
