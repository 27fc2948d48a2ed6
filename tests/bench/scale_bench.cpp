// Membership and planning as clusters grow, through the supervisor itself: what a coordinator computes from
// the first hello to a plan, from a loss to the decision of its era, and for a newcomer; beside that the
// planner's functions alone. Workers are on labelled hosts, racks and zones, state is sharded with two copies
// of a tile, 4 slots and up to 4 tiles a worker. Processor time of this thread, the least of the repetitions;
// no I/O.
//   scale_bench [WORKERS_MOST] [REPETITIONS]   (default: 100000 3)
#include <time.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "coordinator/logic/planner.hpp"
#include "coordinator/logic/supervisor.hpp"

namespace {

using namespace perdura;
using namespace perdura::coordinator;

constexpr std::uint32_t tiles_most = 200'000;
constexpr std::uint32_t copies = 2;
const std::map<std::uint32_t, double> asked_ms{{10'000, 100}, {100'000, 2000}};

double now_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Eight workers a host, four hosts a rack, 16 racks a zone.
node_labels place(std::uint32_t n) {
  return {"h" + std::to_string(n / 8), "r" + std::to_string(n / 32), "z" + std::to_string(n / 512)};
}

std::vector<incarnation> lives(std::uint32_t count) {
  std::mt19937_64 rng(count);
  std::vector<incarnation> all(count);
  for (auto& who : all) who = {rng(), rng()};
  return all;
}

std::uint32_t tiles_for(std::uint32_t workers) { return std::min(4 * workers, tiles_most); }
std::uint32_t slots_for(std::uint32_t workers) { return std::bit_ceil(4 * workers); }

using figures = std::map<std::string, double>;

class cluster {
 public:
  explicit cluster(std::uint32_t workers)
      : all_(lives(workers + 1)), logic_(term_number(1), job(workers), options(workers), {}, {}, out_, now_) {
    for (std::uint32_t i = 0; i < all_.size(); ++i) place_[all_[i]] = place(i);
  }

  figures run() {
    figures f;
    const auto newcomer = all_.back();
    all_.pop_back();
    f["hellos"] = timed([&] {
      for (const auto& who : all_) hello(who);
    });
    f["start"] = timed([&] { report_all(all_, inventories(all_, 0)); });
    f["started"] = timed([&] { adopt(all_); });
    verdict_of(1, {});
    const auto dead = all_[all_.size() / 2];
    all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(all_.size() / 2));
    auto reports = inventories(all_, 1);
    f["loss"] = timed([&] { logic_.lost(dead, "the benchmark says so", now_); });
    for (auto& r : reports) r.at = logic_.state().at;
    f["loss"] += timed([&] { report_all(all_, reports); });
    f["repair"] = timed([&] { adopt(all_); });  // and proposes the missing copies
    take_effect();
    f["join"] = timed([&] { hello(newcomer); });
    expect(logic_.state().pending.has_value(), "the newcomer's plan");
    return f;
  }

 private:
  static job_config job(std::uint32_t workers) {
    job_config j;
    j.name = "scale";
    j.steps = 1'000'000;
    j.sharding = "optimizer";
    j.replicas = copies;
    j.batch.slots = slots_for(workers);
    j.batch.size = 4 * j.batch.slots;
    j.elastic.min_workers = workers - 1;
    return j;
  }
  static supervisor_options options(std::uint32_t workers) {
    supervisor_options o;
    o.tiles = tiles_for(workers);
    o.replicas = copies;
    o.gather = std::chrono::milliseconds(0);
    return o;
  }
  static void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "scale_bench: the supervisor did not give %s\n", what);
    std::exit(1);
  }

  // What is decided is dropped outside of the time.
  template <class Run>
  double timed(Run run) {
    const auto begin = now_ms();
    run();
    const auto took = now_ms() - begin;
    out_.clear();
    return took;
  }

  void hello(const incarnation& who) {
    worker_hello h;
    h.who = who;
    h.numeric_class = 7;
    h.name = short_name(who);
    logic_.arrived(h, place_[who], now_);
  }

  // Of the plan in effect: each has its tiles at `version` and computes its blocks.
  std::vector<inventory_report> inventories(const std::vector<incarnation>& workers, std::uint64_t version) {
    const auto& current = logic_.state().current;
    std::vector<std::vector<tile_inventory>> tiles(current.members.size());
    for (std::uint32_t t = 0; t < current.holders.size(); ++t)
      for (const auto m : current.holders[t])
        tiles[m].push_back({tile_id(t), step_number(version), true, false});
    std::vector<inventory_report> reports;
    for (const auto& who : workers) {
      inventory_report r;
      r.at = logic_.state().at;
      r.who = who;
      r.timeline = logic_.state().timeline;
      r.newest = logic_.state().newest;
      if (const auto* m = current.find(who)) {
        r.tiles = tiles[static_cast<std::size_t>(m - current.members.data())];
        r.partials_step = step_number(version + 1);
        for (const auto& b : m->blocks) r.blocks.push_back({b, block_status::computing, {}});
      }
      reports.push_back(std::move(r));
    }
    return reports;
  }

  void report_all(const std::vector<incarnation>&, const std::vector<inventory_report>& reports) {
    for (const auto& r : reports) logic_.received(r, now_);
    expect(logic_.where() == stage::recovering, "a decision");
  }

  void adopt(const std::vector<incarnation>& workers) {
    for (const auto& who : workers) logic_.received(plan_adopted{logic_.state().at, who}, now_);
    expect(logic_.where() == stage::running, "a started plan");
  }

  void verdict_of(std::uint64_t step, plan_id next) {
    verdict v;
    v.step = step_number(step);
    v.timeline = logic_.state().timeline;
    v.plan = logic_.state().current.id;
    v.next_plan = next.is_none() ? v.plan : next;
    logic_.received(verdict_report{all_.front(), v}, now_);
    out_.clear();
  }

  void take_effect() {
    expect(logic_.state().pending.has_value(), "a plan for the missing copies");
    verdict_of(2, logic_.state().pending->next.id);
    expect(!logic_.state().pending.has_value(), "an effective plan");
  }

  std::vector<incarnation> all_;
  std::map<incarnation, node_labels> place_;
  effects out_;
  time_point now_{};
  supervisor logic_;
};

figures plan_alone(std::uint32_t workers) {
  std::vector<candidate> members;
  label_map labels;
  std::mt19937_64 rng(workers);
  for (const auto& who : lives(workers)) {
    members.push_back({who, 0.5 + static_cast<double>(rng() % 1000) / 1000,
                       place(static_cast<std::uint32_t>(members.size()))});
    labels[who] = members.back().at;
  }
  std::sort(members.begin(), members.end(), [](const auto& a, const auto& b) { return a.who < b.who; });
  const std::vector<std::uint32_t> weights(tiles_for(workers), 1);
  plan before, after;
  figures f;
  const auto timed = [](auto run) {
    const auto begin = now_ms();
    run();
    return now_ms() - begin;
  };
  auto fewer = members;
  fewer.resize(workers - 1);
  before.members = plan_blocks(slots_for(workers), fewer);
  before.holders = plan_tiles(weights, fewer, copies);
  f["blocks"] = timed([&] { after.members = plan_blocks(slots_for(workers), members, 0, before.members); });
  f["tiles"] = timed(
      [&] { after.holders = plan_tiles(weights, members, copies, holders_among(before, after.members)); });
  f["moves"] = timed([&] { tile_moves(before, after, labels, weights); });
  return f;
}

figures least_of(int repetitions, std::uint32_t workers) {
  figures least;
  for (int i = 0; i < repetitions; ++i) {
    auto f = cluster(workers).run();
    f.merge(plan_alone(workers));
    for (const auto& [name, ms] : f) least[name] = least.contains(name) ? std::min(least[name], ms) : ms;
  }
  // Nobody waits for the hellos of a cluster that comes up, one after the other. What has a bound is one
  // change of the members with all its planning; a loss, its repair and a newcomer after each other are for
  // reading.
  least["in_all"] = least["loss"] + least["repair"] + least["join"];
  least["slowest_change"] = std::max({least["loss"], least["repair"], least["join"]});
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  const auto most = static_cast<std::uint32_t>(argc > 1 ? std::atoi(argv[1]) : 100'000);
  const int repetitions = argc > 2 ? std::atoi(argv[2]) : 3;
  if (most < 100 || repetitions < 1) {
    std::fprintf(stderr, "usage: scale_bench [WORKERS_MOST, at least 100] [REPETITIONS]\n");
    return 2;
  }
  std::printf("ms of processor time, the least of %d\n", repetitions);
  figures before;
  for (std::uint32_t n = 100; n <= most; n *= 10) {
    const auto now = least_of(repetitions, n);
    std::printf("%u workers, %u slots, %u tiles\n", n, slots_for(n), tiles_for(n));
    for (const auto& [name, ms] : now) {
      std::printf("%s.%u: %.2f", name.c_str(), n, ms);
      if (before.contains(name) && before[name] > 0)
        std::printf(" (x%.1f for ten times the workers)", ms / before[name]);
      if (name == "slowest_change" && asked_ms.contains(n))
        std::printf(" (asked: <= %g) %s", asked_ms.at(n), ms <= asked_ms.at(n) ? "ok" : "short");
      std::printf("\n");
    }
    std::fflush(stdout);
    before = now;
  }
  return 0;
}
