// perdura-sim: runs seeds of the simulator and stops at the first that breaks the protocol.
#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>

#include "chaos/sim/world.hpp"

using namespace perdura;

namespace {

broken_rules broken_by_name(const std::string& name) {
  for (unsigned r = 0; r < rule_count; ++r)
    if (name == to_string(static_cast<rule>(r))) return broken_rules(static_cast<rule>(r));
  throw CLI::ValidationError("--break", "no such rule: " + name);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs the step protocol under a deterministic simulator; the same seed is the same run."};
  std::uint64_t first = 1, count = 1000;
  bool trace = false;
  std::string broken;
  unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  app.add_option("--seed", first, "first seed")->capture_default_str();
  app.add_option("--seeds", count, "how many")->capture_default_str();
  app.add_option("--threads", threads, "seeds run at the same time")->capture_default_str();
  app.add_option("--break", broken,
                 "break this rule of the protocol: a violation is then what is looked for");
  app.add_flag("--trace", trace, "print what happens (use with --seeds 1)");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }

  const auto rules = broken.empty() ? broken_rules{} : broken_by_name(broken);
  std::printf("seed %llu, %llu seeds\n", static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(count));
  const auto start = std::chrono::steady_clock::now();
  std::atomic<std::uint64_t> next{first}, steps{0}, events{0}, recoveries{0}, restores{0}, failed_seed{~0ULL};
  auto work = [&] {
    for (;;) {
      const auto seed = next++;
      if (seed >= first + count || failed_seed.load() < seed) return;
      const auto r = sim::run_seed({seed, rules, trace});
      steps += r.worker_steps;
      events += r.events;
      recoveries += r.recoveries;
      restores += r.restores;
      if (!r.violated) continue;
      std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), r.violated->c_str());
      auto lowest = failed_seed.load();
      while (seed < lowest && !failed_seed.compare_exchange_weak(lowest, seed)) {}
    }
  };
  std::vector<std::thread> pool;
  for (unsigned i = 0; i < (trace ? 1 : threads); ++i) pool.emplace_back(work);
  for (auto& t : pool) t.join();
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::printf(
      "%llu worker-steps, %llu events, %llu recoveries (%llu restores) in %.1f s: %.0f worker-steps/s\n",
      static_cast<unsigned long long>(steps), static_cast<unsigned long long>(events),
      static_cast<unsigned long long>(recoveries), static_cast<unsigned long long>(restores), spent.count(),
      static_cast<double>(steps) / spent.count());
  if (failed_seed == ~0ULL) return broken.empty() ? 0 : (std::printf("nothing was found\n"), 1);
  std::printf("replay: perdura-sim --seed %llu --seeds 1 --trace\n",
              static_cast<unsigned long long>(failed_seed.load()));
  return broken.empty() ? 1 : 0;
}
