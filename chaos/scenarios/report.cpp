#include "chaos/scenarios/report.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <thread>

#include "chaos/proc/process.hpp"

namespace perdura::chaos {
namespace {

namespace json = boost::json;

constexpr std::int64_t rounding_ms = 2;  // the coordinator's clock readings are whole milliseconds
constexpr std::size_t smooth_steps = 20;
constexpr milliseconds gnuplot_limit{60000};

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

json::object machine() {
  utsname system{};
  ::uname(&system);
  auto memory = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return {{"processor", processor()},
          {"cores", std::thread::hardware_concurrency()},
          {"memory_bytes", memory},
          {"system", std::string(system.sysname) + " " + system.release + " " + system.machine}};
}

json::value number_or_null(const std::optional<double>& value) {
  return value ? json::value(*value) : json::value(nullptr);
}

std::string as_ms(const std::optional<double>& value) {
  if (!value) return "-";
  char text[32];
  std::snprintf(text, sizeof text, "%.0f ms", *value);
  return text;
}

double mean_loss(const std::vector<admin::step_info>& steps, std::size_t first, std::size_t end) {
  double sum = 0;
  for (std::size_t i = first; i < end; ++i) sum += steps[i].loss;
  return end > first ? sum / static_cast<double>(end - first) : 0;
}

}  // namespace

void match(std::vector<blow>& blows, const std::vector<admin::recovery_info>& recoveries) {
  for (auto& b : blows) {
    if (b.kind == "node_joined") continue;
    auto found = std::find_if(recoveries.begin(), recoveries.end(),
                              [&](const auto& r) { return r.time_ms + rounding_ms >= b.time_ms; });
    if (found == recoveries.end()) continue;
    auto until_sign = static_cast<double>(std::max<std::int64_t>(found->time_ms - b.time_ms, 0));
    b.detected_ms = until_sign + found->detected_ms;
    if (found->committed_ms) b.committed_ms = until_sign + *found->committed_ms;
    b.recomputed_slots = found->recomputed_slots;
  }
}

std::string table(const run_report& run) {
  std::ostringstream out;
  auto row = [&](const std::string& what, const std::string& step, const std::string& noticed,
                 const std::string& committed, const std::string& again) {
    out << "  " << std::left << std::setw(34) << what << std::right << std::setw(8) << step << std::setw(12)
        << noticed << std::setw(22) << committed << std::setw(18) << again << "\n";
  };
  row("what happened", "at step", "noticed", "next step committed", "computed twice");
  for (const auto& b : run.blows)
    row(b.what, std::to_string(b.step), as_ms(b.detected_ms), as_ms(b.committed_ms),
        b.kind == "node_joined"
            ? "-"
            : std::to_string(b.recomputed_slots) + " of " + std::to_string(run.slots) + " slots");
  return out.str();
}

void write_json(const run_report& run, const std::filesystem::path& file) {
  json::array steps;
  for (const auto& s : run.steps) steps.push_back({{"step", s.step.value}, {"loss", s.loss}, {"ms", s.ms}});
  json::array recoveries;
  json::array joins;
  for (const auto& b : run.blows) {
    json::object entry{{"what", b.what}, {"kind", b.kind}, {"step", b.step}};
    if (b.kind == "node_joined") {
      joins.push_back(std::move(entry));
      continue;
    }
    entry["detected_ms"] = number_or_null(b.detected_ms);
    entry["committed_ms"] = number_or_null(b.committed_ms);
    entry["recomputed_slots"] = b.recomputed_slots;
    recoveries.push_back(std::move(entry));
  }
  json::object all{{"final_hash", run.job.final_hash},
                   {"final_loss", final_loss(run.steps)},
                   {"seed", run.seed},
                   {"faults", run.faults},
                   {"seconds", run.seconds},
                   {"version", run.cluster.version},
                   {"timeline", run.job.timeline.value},
                   {"era", to_string(run.job.at)},
                   {"machine", machine()},
                   {"recoveries", std::move(recoveries)},
                   {"joins", std::move(joins)},
                   {"job", run.job_text},
                   {"steps", std::move(steps)}};
  std::ofstream out(file);
  out << all << "\n";
  if (!out.flush()) throw failure("cannot write " + file.string());
}

bool draw_loss(const run_report& run, const std::filesystem::path& picture,
               const std::filesystem::path& scratch) {
  auto script = scratch / "loss.gnuplot";
  {
    std::ofstream out(script);
    out << "set terminal pngcairo size 1000,500 font 'sans,11'\nset output '" << picture.string()
        << "'\nset xlabel 'step'\nset ylabel 'loss'\nset logscale y\nset autoscale yfix\nset ytics (0.2, "
           "0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.2, 1.5, 2)\nset grid ytics lc rgb '#dddddd'\n"
           "set border 3\nset tics nomirror\nset title 'final hash "
        << run.job.final_hash << "'\n";
    for (const auto& b : run.blows) {
      const char* color = b.kind == "node_joined" ? "#2a8a4a" : "#c03030";
      out << "set arrow from " << b.step << ", graph 0 to " << b.step << ", graph 1 nohead dt 2 lc rgb '"
          << color << "'\nset label '" << b.what << "' at " << b.step
          << ", graph 0.98 rotate by 90 right offset -0.7,0 tc rgb '" << color << "'\n";
    }
    out << "$loss << EOD\n";
    for (std::size_t i = 0; i < run.steps.size(); ++i) {
      auto first = i + 1 > smooth_steps ? i + 1 - smooth_steps : 0;
      out << run.steps[i].step.value << " " << run.steps[i].loss << " " << mean_loss(run.steps, first, i + 1)
          << "\n";
    }
    out << "EOD\nplot $loss using 1:2 with lines lc rgb '#b8c8e0' title 'step', "
           "$loss using 1:3 with lines lw 2 lc rgb '#20408a' title 'mean of "
        << smooth_steps << "'\n";
  }
  process gnuplot(
      {.program = "/usr/bin/gnuplot", .arguments = {script.string()}, .output = scratch / "gnuplot.out"});
  return gnuplot.wait(gnuplot_limit) == 0;
}

std::optional<std::string> earlier_hash(const std::filesystem::path& file, const std::string& job_text) {
  std::ifstream in(file);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  json::error_code wrong;
  auto parsed = json::parse(text, wrong);
  if (wrong || !parsed.is_object()) return std::nullopt;
  const auto* job = parsed.as_object().if_contains("job");
  const auto* hash = parsed.as_object().if_contains("final_hash");
  if (job == nullptr || hash == nullptr || !job->is_string() || !hash->is_string()) return std::nullopt;
  if (job->as_string() != job_text) return std::nullopt;
  return std::string(hash->as_string());
}

double final_loss(const std::vector<admin::step_info>& steps) {
  return mean_loss(steps, steps.size() > smooth_steps ? steps.size() - smooth_steps : 0, steps.size());
}

}  // namespace perdura::chaos
