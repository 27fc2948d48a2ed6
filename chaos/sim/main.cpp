// perdura-sim: runs seeds of the simulator, stops at the first that breaks the protocol and makes it short.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>

#include "chaos/sim/shrink.hpp"
#include "chaos/sim/world.hpp"

using namespace perdura;

namespace {

struct sim_arguments {
  std::uint64_t first = 1, count = 1000;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  std::string broken;
  std::string schedule;
  std::uint64_t shrink = 0;
  bool trace = false;
  bool keeps_long = false;
};

struct totals {
  std::atomic<std::uint64_t> steps{0}, events{0}, recoveries{0}, restores{0}, violations{0};
  std::atomic<std::uint64_t> failed_seed{~0ULL};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  void add(const sim::sim_result& r) {
    steps += r.worker_steps;
    events += r.events;
    recoveries += r.recoveries;
    restores += r.restores;
    violations += r.violated ? 1 : 0;
  }
  void print() const {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf(
        "%llu worker-steps, %llu events, %llu recoveries (%llu restores) in %.1f s: %.0f worker-steps/s\n",
        static_cast<unsigned long long>(steps), static_cast<unsigned long long>(events),
        static_cast<unsigned long long>(recoveries), static_cast<unsigned long long>(restores), spent.count(),
        static_cast<double>(steps) / spent.count());
  }
};

broken_rules broken_by_name(const std::string& name) {
  if (name.empty()) return {};
  for (unsigned r = 0; r < rule_count; ++r)
    if (name == to_string(static_cast<rule>(r))) return broken_rules(static_cast<rule>(r));
  throw CLI::ValidationError("--break", "no such rule: " + name);
}

std::string text_or_file(const std::string& given) {
  std::ifstream file(given);
  if (!file) return given;
  return {std::istreambuf_iterator<char>(file), {}};
}

void print_short(const sim::scenario& s, const std::string& violated, const sim_arguments& a) {
  const auto rules = broken_by_name(a.broken);
  const auto found = sim::shrink(s, violated, rules);
  std::printf("shortest schedule (%u runs): %s\n  %s\n", found.runs, found.violated.c_str(),
              to_string(found.shortest).c_str());
  // How much it hangs on the delays of this seed.
  unsigned again = 0;
  auto other = found.shortest;
  for (std::uint64_t i = 0; i < 100; ++i) {
    other.seed = i;
    again += sim::run_scenario(other, rules).violated ? 1 : 0;
  }
  std::printf("  the same faults break the protocol under %u of the seeds 0 to 99\n", again);
}

void run_seeds(const sim_arguments& a, totals& all) {
  const auto rules = broken_by_name(a.broken);
  std::atomic<std::uint64_t> next{a.first};
  auto work = [&] {
    for (;;) {
      const auto seed = next++;
      if (seed >= a.first + a.count || all.failed_seed.load() < seed) return;
      const auto r = sim::run_seed({seed, rules, a.trace});
      all.add(r);
      if (!r.violated) continue;
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), r.violated->c_str());
      auto lowest = all.failed_seed.load();
      while (seed < lowest && !all.failed_seed.compare_exchange_weak(lowest, seed)) {}
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < (a.trace ? 1 : a.threads); ++i) pool.emplace_back(work);
  for (auto& t : pool) t.join();
}

// The schedule under as many seeds as asked for, from its own on.
int run_schedule(const sim_arguments& a, totals& all) {
  auto s = sim::parse_scenario(text_or_file(a.schedule));
  if (!s) return std::fprintf(stderr, "perdura-sim: %s\n", s.failure().message.c_str()), 2;
  for (std::uint64_t i = 0; i < a.count; ++i, ++s->seed) {
    const auto r = sim::run_scenario(*s, broken_by_name(a.broken), a.trace);
    all.add(r);
    if (r.violated)
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(s->seed), r.violated->c_str());
  }
  all.print();
  std::printf("%llu of %llu seeds broke the protocol\n", static_cast<unsigned long long>(all.violations),
              static_cast<unsigned long long>(a.count));
  return all.violations == 0 ? 0 : 1;
}

int run(const sim_arguments& a) {
  totals all;
  if (!a.schedule.empty()) return run_schedule(a, all);
  std::printf("seed %llu, %llu seeds\n", static_cast<unsigned long long>(a.first),
              static_cast<unsigned long long>(a.count));
  run_seeds(a, all);
  all.print();
  const auto seed = all.failed_seed.load();
  if (seed == ~0ULL) return a.broken.empty() ? 0 : (std::printf("nothing was found\n"), 1);
  const auto rule = a.broken.empty() ? std::string() : " --break " + a.broken;
  std::printf("replay: perdura-sim --seed %llu --seeds 1 --trace%s\n", static_cast<unsigned long long>(seed),
              rule.c_str());
  const auto s = sim::draw_scenario(seed);
  const auto violated = sim::run_scenario(s, broken_by_name(a.broken)).violated;
  if (violated && !a.keeps_long) print_short(s, *violated, a);
  return a.broken.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs the step protocol under a deterministic simulator; the same seed is the same run."};
  sim_arguments a;
  app.add_option("--seed", a.first, "first seed")->capture_default_str();
  auto* count = app.add_option("--seeds", a.count, "how many")->capture_default_str();
  app.add_option("--threads", a.threads, "seeds run at the same time")->capture_default_str();
  app.add_option("--break", a.broken,
                 "break this rule of the protocol: a violation is then what is looked for");
  app.add_option("--schedule", a.schedule,
                 "run this schedule (text or a file); --seeds counts seeds for its delays");
  app.add_option("--shrink", a.shrink, "run this seed alone and make its schedule short");
  app.add_flag("--keep-long", a.keeps_long, "do not make the schedule of a violation short");
  app.add_flag("--trace", a.trace, "print what happens (use with --seeds 1)");
  try {
    app.parse(argc, argv);
    broken_by_name(a.broken);
    if (a.shrink > 0) a.first = a.shrink, a.count = 1;
    if (!a.schedule.empty() && count->count() == 0) a.count = 1;
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }
  return run(a);
}
