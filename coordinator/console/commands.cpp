#include "coordinator/console/commands.hpp"

#include <boost/json.hpp>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>

#include "coordinator/console/progress.hpp"
#include "coordinator/console/tables.hpp"

namespace perdura::console {

using namespace admin;

namespace {

constexpr std::size_t job_file_bytes_max = 1u << 20;
constexpr std::uint32_t steps_page = 50000;
// Short, so that Ctrl-C is noticed between two.
constexpr std::uint32_t follow_wait_ms = 1000;
constexpr int tend_waits = 30;

// ---- reads
// -------------------------------------------------------------------------------------------------

// Shows what a call gave, as the table or record that `make` makes of it.
template <class T, class Make>
result<void> show(invocation& call, const result<T>& answer, Make make) {
  if (!answer) return answer.failure();
  call.view.show(make(*answer));
  return {};
}

result<void> run_status(invocation& call) {
  auto status = call.api.status();
  if (!status) return status.failure();
  auto jobs = call.api.jobs();
  if (!jobs) return jobs.failure();
  auto nodes = call.api.nodes();
  if (!nodes) return nodes.failure();
  auto workers = call.api.workers();
  if (!workers) return workers.failure();
  auto tiers = call.api.tiers();
  if (!tiers) return tiers.failure();
  document all{{{"cluster", "cluster", cluster_record(*status)},
                {"jobs", "jobs", jobs_table(*jobs)},
                {"nodes", "nodes", nodes_table(*nodes)},
                {"workers", "workers", workers_table(*workers)}}};
  if (!tiers->empty() || call.view.is_json()) all.parts.push_back({"tiers", "tiers", tiers_table(*tiers)});
  call.view.show(all);
  return {};
}

result<void> run_nodes(invocation& call) { return show(call, call.api.nodes(), nodes_table); }
result<void> run_workers(invocation& call) { return show(call, call.api.workers(), workers_table); }
result<void> run_jobs(invocation& call) { return show(call, call.api.jobs(), jobs_table); }
result<void> run_plan(invocation& call) { return show(call, call.api.plan(call.args.job), plan_table); }
bool plans_file(const arguments& args) { return is_job_file(args.job); }
result<void> run_plan_alone(const arguments& args, renderer& view) {
  auto options = args.plan;
  options.file = args.job;
  return run_plan_file(options, view);
}
result<void> run_tiers(invocation& call) { return show(call, call.api.tiers(), tiers_table); }
result<void> run_checkpoints(invocation& call) {
  return show(call, call.api.checkpoints(call.args.job), checkpoints_table);
}

result<std::vector<step_info>> all_steps(admin_api& api, const std::string& job, std::uint64_t from) {
  std::vector<step_info> steps;
  for (step_number next(from);; next = steps.back().step + 1) {
    auto page = api.steps(job, next, steps_page);
    if (!page) return page.failure();
    steps.insert(steps.end(), page->begin(), page->end());
    if (page->size() < steps_page) return steps;
  }
}

result<void> run_job(invocation& call) {
  if (call.args.job.empty() && !call.args.given("--steps")) return show(call, call.api.jobs(), jobs_table);
  auto job = find_job(call.api, call.args.job);
  if (!job) return job.failure();
  auto recoveries = call.api.recoveries(job->id);
  if (!recoveries) return recoveries.failure();
  document all{{{"job", "", job_record(*job)}, {"recoveries", "recoveries", recoveries_table(*recoveries)}}};
  if (call.args.given("--steps")) {
    auto steps = all_steps(call.api, job->id, call.args.steps_from);
    if (!steps) return steps.failure();
    all.parts.push_back({"steps", "steps", steps_table(*steps)});
  }
  call.view.show(all);
  return {};
}

result<void> run_events(invocation& call) {
  event_query query{.after = call.args.after,
                    .limit = call.args.count,
                    .job = call.args.job,
                    .newest = !call.args.given("--after")};
  while (true) {
    auto page = call.api.events(query);
    if (!page) return page.failure();
    const auto rows = events_table(page->events);
    if (!call.args.follow) {
      call.view.show(rows);
      return {};
    }
    for (std::size_t r = 0; r < rows.rows.size(); ++r) call.view.show_row(rows, r);
    if (call.interrupted()) return {};
    query.after = page->next;
    query.newest = false;
    query.limit = 200;
    query.wait_ms = follow_wait_ms;
  }
}

result<void> watch(invocation& call, const std::string& name) {
  auto found = find_job(call.api, name);
  if (!found) return found.failure();
  result<job_info> last = found;
  {
    // JSON is for machines: no bar in it.
    std::ostringstream nowhere;
    progress_view quiet(nowhere, false);
    progress_view shown;
    last = watch_job(call.api, found->id, call.view.is_json() ? quiet : shown, call.interrupted);
  }
  if (!last) return last.failure();
  call.view.show(job_record(*last));
  if (last->state == job_state::finished || !has_ended(last->state)) return {};
  return error{errc::refused, "job " + last->id + " " + std::string(to_string(last->state)) +
                                  (last->why.empty() ? "" : ": " + last->why)};
}

result<void> run_watch(invocation& call) { return watch(call, call.args.job); }

// ---- writes
// ------------------------------------------------------------------------------------------------

record receipt_record(const receipt& r) { return {{{{"note", ""}, value(boost::json::string(r.note))}}}; }

result<void> tell(invocation& call, const result<receipt>& r) {
  if (!r) return r.failure();
  if (call.view.is_json())
    call.view.show(receipt_record(*r));
  else
    call.view.say(r->note);
  return {};
}

result<void> run_pause(invocation& call) { return tell(call, call.api.pause(call.args.job)); }
result<void> run_resume(invocation& call) { return tell(call, call.api.resume(call.args.job)); }
result<void> run_cancel(invocation& call) { return tell(call, call.api.cancel(call.args.job)); }
result<void> run_drain(invocation& call) {
  const std::chrono::milliseconds within(call.args.deadline_ms);
  return tell(call, call.api.drain(call.args.name,
                                   call.args.given("--deadline") ? std::optional(within) : std::nullopt));
}
result<void> run_kill(invocation& call) { return tell(call, call.api.kill(call.args.name)); }
result<void> run_checkpoint_now(invocation& call) {
  return tell(call, call.api.checkpoint_now(call.args.job));
}
// Both work on in the background: their outcome is the next event of its kind.
result<void> tend(invocation& call, const std::function<result<receipt>()>& ask) {
  const auto status = call.api.status();
  if (!status) return status.failure();
  const auto asked = ask();
  if (!asked) return asked.failure();
  event_query query{.after = status->last_event, .limit = 200, .wait_ms = follow_wait_ms};
  for (int i = 0; i < tend_waits && !call.interrupted(); ++i) {
    const auto page = call.api.events(query);
    if (!page) return page.failure();
    for (const auto& e : page->events)
      if (e.kind == "store_tended") return tell(call, receipt{e.reason});
    query.after = page->next;
  }
  return tell(call, receipt{asked->note + "; it is still at work, perdura events will say how it ended"});
}
result<void> run_gc(invocation& call) {
  return tend(call, [&] { return call.api.collect_garbage(call.args.job, call.args.dry_run); });
}
result<void> run_rebuild_index(invocation& call) {
  return tend(call, [&] { return call.api.rebuild_index(); });
}
result<void> run_shutdown(invocation& call) { return tell(call, call.api.shutdown()); }

result<std::string> read_file(const std::string& name) {
  std::ifstream file;
  if (name != "-") file.open(name, std::ios::binary);
  std::istream& in = name == "-" ? std::cin : file;
  std::string text(job_file_bytes_max + 1, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (in.bad() || (name != "-" && !file.is_open()))
    return error{errc::io, "cannot read the job file " + name + "; examples are in configs/jobs"};
  text.resize(static_cast<std::size_t>(in.gcount()));
  if (text.size() > job_file_bytes_max)
    return error{errc::exhausted,
                 name + ": a job file has at most " + std::to_string(job_file_bytes_max) + " bytes"};
  return text;
}

result<void> run_submit(invocation& call) {
  auto text = read_file(call.args.file);
  if (!text) return text.failure();
  auto answer = call.api.submit(*text, call.args.file);
  if (!answer) return answer.failure();
  if (!answer->errors.empty()) {
    std::string all = "the job was refused";
    for (const auto& line : answer->errors) all += "; " + line;
    for (const auto& line : answer->errors) call.view.err() << line << "\n";
    return error{errc::invalid_argument, all};
  }
  if (call.args.watch) return watch(call, answer->job);
  if (call.view.is_json())
    call.view.show(record{{{{"job", "job"}, value(boost::json::string(answer->job))}}});
  else
    call.view.say("job " + answer->job + " is submitted; perdura watch " + answer->job + " shows it");
  return {};
}

// ---- their options
// -----------------------------------------------------------------------------------------

void no_options(CLI::App&, arguments&) {}
void job_option(CLI::App& app, arguments& args) {
  app.add_option("JOB", args.job, "its id or name; default: the job that runs, else the newest");
}
void gc_options(CLI::App& app, arguments& args) {
  job_option(app, args);
  app.add_flag("--dry-run", args.dry_run, "only say what would go");
}
void plan_options(CLI::App& app, arguments& args) {
  auto& o = args.plan;
  app.add_option(
      "JOB", args.job,
      "a job that runs, by id or name; default: the one that runs. Or a job file: what it would take, "
      "before anything runs; the options are for this");
  app.add_option("--workers", o.workers,
                 "so many, each on a machine of its own; default: 2 if there is no --node")
      ->check(CLI::Range(1u, 100000u).description("1 to 100000"));
  app.add_option(
         "--node", o.nodes,
         "a machine: how many devices, what it shares with others, its memory, its speed relative to this "
         "one; may be repeated")
      ->type_name("NAME=DEVICES,host=..,rack=..,zone=..,gib=..,speed=..");
  app.add_option("--gbit-per-s", o.gbit_per_s, "of each worker's link, each way")
      ->check(CLI::Range(0.001, 100000.0).description("0.001 to 100000"))
      ->capture_default_str();
  app.add_option(
         "--costs", o.costs,
         "what perdura-worker --describe JOB --measure --json printed on a machine that is meant; default: "
         "measure here")
      ->type_name("FILE");
}
void job_options(CLI::App& app, arguments& args) {
  app.add_option("JOB", args.job, "its id or name; default: a table of all");
  app.add_option("--steps", args.steps_from,
                 "also loss and time of each step, from this one on; default: from the first")
      ->expected(0, 1)
      ->type_name("[FROM]");
}
void event_options(CLI::App& app, arguments& args) {
  app.add_flag("-f,--follow", args.follow, "go on with new ones as they happen");
  app.add_option("-n,--count", args.count, "how many, the newest")
      ->check(CLI::Range(1u, 500u).description("1 to 500"))
      ->capture_default_str();
  app.add_option("--after", args.after, "begin after this event's number (0: with the oldest kept)");
  app.add_option("--job", args.job, "of this job only");
}
void submit_options(CLI::App& app, arguments& args) {
  app.add_option("FILE", args.file, "the job, as TOML; - for standard input")->required();
  app.add_flag("-w,--watch", args.watch, "show it until it ends");
}
void drain_options(CLI::App& app, arguments& args) {
  app.add_option("NAME", args.name, "a node (node-1) or a worker (node-1/0)")->required();
  const std::map<std::string, std::uint64_t> units{{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};
  app.add_option("--deadline", args.deadline_ms,
                 "the machine is gone then: 500ms, 30s, 2m, 1h, up to a week; default: none")
      ->transform(CLI::AsNumberWithUnit(units, CLI::AsNumberWithUnit::UNIT_REQUIRED).description(""))
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{7} * 24 * 3'600'000).description(""))
      ->type_name("TIME");
}
void kill_options(CLI::App& app, arguments& args) {
  app.add_option("WORKER", args.name, "a worker (node-1/0)")->required();
}

// A command that needs no coordinator, but the folder of a store.
template <void (*Declare)(CLI::App&, store_options&), result<void> (*Run)(const store_options&, renderer&)>
command on_store(const char* name, const char* help) {
  return {name,
          help,
          [](CLI::App& app, arguments& args) { Declare(app, args.store); },
          [](invocation&) { return result<void>(); },
          [](const arguments&) { return true; },
          [](const arguments& args, renderer& view) { return Run(args.store, view); }};
}

}  // namespace

const std::vector<command>& commands() {
  static const std::vector<command> all{
      {"status", "the cluster, its jobs, nodes and workers", no_options, run_status},
      {"nodes", "machines: state, labels, what is drained and how long it has left", no_options, run_nodes},
      {"workers", "workers: job, slots, time of a slot, tiles, lag, memory", no_options, run_workers},
      {"jobs", "jobs: priority, workers, step, and what those that wait are missing", no_options, run_jobs},
      {"job", "jobs, or one in full with its recoveries and the reason why it does not run", job_options,
       run_job},
      {"watch", "show a job's progress until it ends", job_option, run_watch},
      {"plan", "who computes which slots of a step and holds which tiles; of a file: what it would take",
       plan_options, run_plan, plans_file, run_plan_alone},
      {"events", "what was decided, and why", event_options, run_events},
      {"submit", "hand in a job", submit_options, run_submit},
      {"pause", "stop a job after its step; its workers keep the state", job_option, run_pause},
      {"resume", "let a paused job go on", job_option, run_resume},
      {"cancel", "end a job", job_option, run_cancel},
      {"drain", "let a node or a worker hand over its work and leave", drain_options, run_drain},
      {"kill", "kill a worker's process; the job recovers", kill_options, run_kill},
      {"ckpt list", "checkpoints of a job", job_option, run_checkpoints},
      {"ckpt tiers", "how far checkpoints have come in each tier", no_options, run_tiers},
      {"ckpt now", "write a checkpoint at the next step", job_option, run_checkpoint_now},
      on_store<show_options, run_ckpt_show>("ckpt show", "what a checkpoint holds, takes and shares"),
      on_store<diff_options, run_ckpt_diff>("ckpt diff",
                                            "how far each tensor has moved between two checkpoints"),
      on_store<verify_options, run_ckpt_verify>("ckpt verify", "read every byte of a checkpoint, or of all"),
      {"ckpt gc", "delete what the job's retention does not keep, and what nothing needs", gc_options,
       run_gc},
      {"ckpt rebuild-index", "make the coordinator's index anew from the store", no_options,
       run_rebuild_index},
      on_store<du_options, run_ckpt_du>("ckpt du", "what checkpoints take, together and each alone"),
      on_store<tag_options, run_ckpt_tag>("ckpt tag", "name a checkpoint; it is kept until the tag is gone"),
      on_store<untag_options, run_ckpt_untag>("ckpt untag", "take a tag away"),
      {"shutdown", "end the coordinator; nodes and workers end with it", no_options, run_shutdown},
  };
  return all;
}

void declare_commands(CLI::App& app, arguments& args, const command*& chosen) {
  app.require_subcommand(0, 1);
  for (const auto& c : commands()) {
    CLI::App* parent = &app;
    std::string name = c.name;
    if (const auto space = name.find(' '); space != std::string::npos) {
      const auto group = name.substr(0, space);
      const auto made = app.get_subcommands([&](const CLI::App* sub) { return sub->get_name() == group; });
      parent = made.empty() ? app.add_subcommand(group, "checkpoints")->require_subcommand(1) : made.front();
      name = name.substr(space + 1);
    }
    auto* sub = parent->add_subcommand(name, c.help);
    sub->add_flag("--json", args.json, "JSON instead of text");
    c.declare(*sub, args);
    sub->callback([&args, &chosen, &c, sub] {
      chosen = &c;
      args.chosen = sub;
    });
  }
}

exit_code run_command(const command& chosen, const arguments& args, session& to, renderer& view,
                      std::function<bool()> interrupted) {
  if (chosen.stands_alone && chosen.stands_alone(args)) {
    const auto done = chosen.run_alone(args, view);
    if (done) return exit_ok;
    view.fail(done.failure());
    return exit_failed;
  }
  auto api = to.open();
  if (!api) {
    view.fail(api.failure());
    return exit_code_of(api.failure());
  }
  invocation call{**api, args, view, std::move(interrupted)};
  auto done = chosen.run(call);
  if (done) return exit_ok;
  view.fail(done.failure());
  if (exit_code_of(done.failure()) == exit_unreachable) to.close();
  return exit_code_of(done.failure());
}

result<std::vector<std::string>> split_words(const std::string& line) {
  std::vector<std::string> words;
  bool in_word = false;
  char quote = '\0';
  for (const char c : line) {
    if (quote != '\0') {
      if (c == quote)
        quote = '\0';
      else
        words.back() += c;
      continue;
    }
    if (c == ' ' || c == '\t') {
      in_word = false;
      continue;
    }
    if (!in_word) words.emplace_back();
    in_word = true;
    if (c == '"' || c == '\'')
      quote = c;
    else
      words.back() += c;
  }
  if (quote != '\0') return error{errc::invalid_argument, std::string("an open quote: ") + quote};
  return words;
}

}  // namespace perdura::console
