// The demo: a cluster on this machine trains a diffusion transformer, loses a worker and then a whole node,
// gets a fresh one, and ends with the bits of a run that lost nothing.
#include <CLI/CLI.hpp>
#include <csignal>
#include <fstream>
#include <iostream>
#include <iterator>
#include <thread>

#include "actors/runtime/config_file.hpp"
#include "chaos/proc/cluster.hpp"
#include "chaos/scenarios/report.hpp"
#include "coordinator/console/progress.hpp"

using namespace perdura;
using namespace perdura::chaos;

namespace {

constexpr milliseconds poll_interval{20};
constexpr milliseconds end_limit{15000};
constexpr milliseconds sample_limit{180000};
constexpr int exit_interrupted = 130;

volatile std::sig_atomic_t interrupted = 0;

struct options {
  std::string job_file = "configs/jobs/fashion-dit.toml";
  std::string out = "out";
  bool quick = false;
  bool faults = true;
};

// Something that is done to the cluster once a step is committed.
struct act {
  std::uint64_t at_step;
  std::string announcement;
  blow what;
  std::function<void(cluster&)> run;
};

std::vector<act> story(std::uint64_t steps) {
  return {{steps / 3,
           "killing a worker: node-2/0 (its agent will start another)",
           {.what = "worker node-2/0 killed", .kind = "worker_killed"},
           [](cluster& c) { c.kill_worker("node-2/0"); }},
          {steps * 2 / 3,
           "killing a node: node-3, its agent and its worker",
           {.what = "node-3 killed", .kind = "node_killed"},
           [](cluster& c) { c.kill_node("node-3"); }},
          {steps * 2 / 3 + steps / 20,
           "starting a fresh node: node-4",
           {.what = "node-4 started", .kind = "node_joined"},
           [](cluster& c) { c.start_node({.name = "node-4"}); }}};
}

std::string read_text(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw failure("cannot read " + file);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::int64_t unix_ms() {
  auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<milliseconds>(now).count();
}

// Until the job has ended; does each act when its step has come. Stops early when interrupted.
void watch(cluster& c, console::progress_view& view, std::vector<act> acts, run_report& run) {
  std::size_t members = 0;
  while (interrupted == 0) {
    run.job = c.job();
    if (admin::has_ended(run.job.state)) break;
    if (auto now = console::count_members(c.workers()); now != members) {
      if (members != 0) view.say(std::to_string(now) + " workers now");
      members = now;
    }
    view.show(run.job, members);
    while (!acts.empty() && run.job.step.value >= acts.front().at_step) {
      auto next = std::move(acts.front());
      acts.erase(acts.begin());
      view.say("step " + to_string(run.job.step) + ": " + next.announcement);
      next.what.step = run.job.step.value;
      next.what.time_ms = unix_ms();
      next.run(c);
      run.blows.push_back(std::move(next.what));
    }
    std::this_thread::sleep_for(poll_interval);
  }
}

// Ten classes, six images each, from the job's last checkpoint.
bool draw_samples(const cluster& c, const options& o, const std::filesystem::path& picture) {
  process generate({.program = cluster_options::program_folder() / "perdura",
                    .arguments = {"generate", "--checkpoint", (c.folder() / "data").string(), "--grid", "6",
                                  "--seed", "1", "-o", picture.string()},
                    .output = c.folder() / "logs" / "generate.out"});
  auto code = generate.wait(sample_limit);
  if (code != 0) std::cerr << "no samples:\n" << tail(c.folder() / "logs" / "generate.out", 10);
  return code == 0 && !o.out.empty();
}

int tell(const run_report& run, const std::optional<std::string>& earlier) {
  std::cout << "\n"
            << table(run) << "\n  " << run.job.step.value << " steps in " << static_cast<int>(run.seconds)
            << " s, loss " << final_loss(run.steps) << ", final hash " << run.job.final_hash << "\n";
  if (!earlier) return 0;
  bool same = *earlier == run.job.final_hash;
  std::cout << (same ? "  the run before this one ended with the same hash\n"
                     : "  the run before this one ended with ANOTHER hash: " + *earlier + "\n");
  return 0;
}

int play(const options& o) {
  auto text = read_text(o.job_file);
  auto job = runtime::parse_job(text, o.job_file);
  if (!job) throw failure(job.failure().message);
  std::filesystem::path out = o.out;
  std::filesystem::create_directories(out);
  auto earlier = earlier_hash(out / "run.json", text);

  run_report run{.job_text = text, .seed = job->seed, .slots = job->batch.slots, .faults = o.faults};
  cluster c({.settings = ""});
  console::progress_view view;
  c.start_coordinator();
  for (const char* name : {"node-1", "node-2", "node-3"}) c.start_node({.name = name});
  view.say("a coordinator and three nodes with a worker each; " + job->name + ", " +
           std::to_string(job->steps) + " steps");
  c.submit(text);
  auto began = std::chrono::steady_clock::now();
  watch(c, view, o.faults ? story(job->steps) : std::vector<act>{}, run);
  if (interrupted != 0) {
    view.say("interrupted: ending the cluster");
    c.shut_down(end_limit);
    return exit_interrupted;
  }
  if (run.job.state != admin::job_state::finished) throw failure("the job did not finish: " + run.job.why);
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  run.cluster = c.status();
  run.steps = c.steps();
  match(run.blows, c.recoveries());
  view.say("done; ending the cluster and drawing samples");
  if (!c.shut_down(end_limit)) throw failure("processes were left behind by the cluster");

  write_json(run, out / "run.json");
  bool drawn = draw_loss(run, out / "loss.png", c.folder());
  bool sampled = draw_samples(c, o, out / "samples.png");
  tell(run, earlier);
  std::cout << "  " << (out / "run.json").string() << (drawn ? ", " + (out / "loss.png").string() : "")
            << (sampled ? ", " + (out / "samples.png").string() : "") << "\n";
  return drawn && sampled ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Trains a diffusion model on a cluster of processes and kills some of them meanwhile.",
               "demo"};
  options o;
  bool no_faults = false;
  app.add_flag("--quick", o.quick, "the same story with a smaller model, in under a minute");
  app.add_flag("--no-faults", no_faults, "kill nothing; ends with the same hash");
  app.add_option("--job", o.job_file, "job file")->capture_default_str()->check(CLI::ExistingFile);
  app.add_option("--out", o.out, "folder for samples.png, loss.png and run.json")->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) { return app.exit(e) == 0 ? 0 : 2; }
  o.faults = !no_faults;
  if (o.quick && app.count("--job") == 0) o.job_file = "configs/jobs/fashion-dit-quick.toml";
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  try {
    return play(o);
  } catch (const std::exception& e) {
    std::cerr << "demo: " << e.what() << "\n";
    return 1;
  }
}
